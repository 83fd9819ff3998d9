// SPDX-License-Identifier: Apache-2.0
// Bytes in which a piece that is lost, doubled or misplaced shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace smp::transport {

inline std::vector<std::byte> numbered(size_t count, uint32_t start = 0) {
  std::vector<std::byte> bytes(count);
  for (size_t at = 0; at < count; ++at) bytes[at] = static_cast<std::byte>((start + at) * 31 >> 3);
  return bytes;
}

}  // namespace smp::transport
