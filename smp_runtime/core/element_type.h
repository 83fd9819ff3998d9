// SPDX-License-Identifier: Apache-2.0
// The elements that collectives add up, and how.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace smp {

enum class ElementType : uint8_t {
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kInt8,
  kUint8,
  kInt16,
  kInt32,
  kInt64,
  kBool,
  kBytes,  ///< moved, never reduced: what has no other name here
};

enum class ReduceOp : uint8_t { kSum, kAverage, kProduct, kMin, kMax, kBitAnd, kBitOr, kBitXor };

[[nodiscard]] size_t size_bytes(ElementType type);
[[nodiscard]] std::string_view name(ElementType type);
[[nodiscard]] std::string_view name(ReduceOp op);

/// Throws ConfigError where the operation means nothing: bits of floats, an average of truths.
void check_reducible(ElementType type, ReduceOp op);

}  // namespace smp
