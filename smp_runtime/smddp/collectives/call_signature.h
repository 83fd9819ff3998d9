// SPDX-License-Identifier: Apache-2.0
// A rank's description of the collective that it calls, so that ranks that do not agree get an
// error and not a hang or wrong numbers.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "smp_runtime/core/element_type.h"

namespace smp::collectives {

enum class Collective : uint8_t {
  kAllReduce,
  kReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kAllToAll,
  kGather,
  kScatter,
  kBarrier,
};

[[nodiscard]] std::string_view name(Collective collective);

/// Plain bytes, copied between processes as they are. Unused bytes are zero.
struct CallSignature {
  static constexpr int kMaxDims = 8;
  static constexpr size_t kMaxTypeName = 24;

  uint64_t sequence = 0;  ///< how many collectives the group had before
  uint64_t elements = 0;  ///< that one rank contributes; 0 where ranks may differ
  Collective collective{};
  ElementType type{};
  ReduceOp op{};
  uint8_t dims = 0;  ///< more than kMaxDims: the shape is not told
  int32_t root = -1;
  std::array<int64_t, kMaxDims> shape{};  ///< for messages only
  uint32_t route = 0;                     ///< GpuRoute: by which way the data go
  uint32_t several_threads = 0;           ///< 1: the rank's calls came from several
  /// The caller's name for its type, of which `type` may be a part, as of complex numbers; the end
  /// is filled with zeros. May be empty.
  std::array<char, kMaxTypeName> type_name{};

  /// Do both describe one call? Shapes may differ as long as the sizes agree.
  [[nodiscard]] bool matches(const CallSignature& other) const;
  /// E.g. "all_reduce #3 of float32 [2, 5], sum".
  [[nodiscard]] std::string text() const;
};

/// A rank and what it called; by group rank.
struct RankedCall {
  int name;
  CallSignature call;
};

/// The message for calls that do not match: every rank with what it called, equal ones together,
/// and whose calls came from several threads, which is often why.
[[nodiscard]] std::string describe_mismatch(std::span<const RankedCall> calls);

}  // namespace smp::collectives
