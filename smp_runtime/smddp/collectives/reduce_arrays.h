// SPDX-License-Identifier: Apache-2.0
// What one call of the loops of reduce() works on.
#pragma once

#include <cstddef>
#include <cstdint>

namespace smp::collectives {

/// How much of a reduction a call makes: all of it, or first a part of it, of the ranks of a host,
/// and then a whole of such parts. See part_size_bytes().
enum class Stage : uint8_t { kWhole, kPart, kParts };

struct Arrays {
  const std::byte* const* sources;
  size_t source_count;
  std::byte* destination;
  size_t count;
  int divisor;
  Stage stage;
};

}  // namespace smp::collectives
