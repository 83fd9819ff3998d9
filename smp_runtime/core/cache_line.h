// SPDX-License-Identifier: Apache-2.0
// The unit in which processors share memory.
#pragma once

#include <cstddef>

namespace smp {

/// Bytes of a cache line: what different threads or processes write stands on lines of its own, and
/// blocks that are cut to whole lines keep the alignment of every element type.
inline constexpr std::size_t kCacheLineBytes = 64;

/// `bytes` in whole cache lines, rounded up.
constexpr std::size_t whole_cache_lines(std::size_t bytes) {
  return (bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
}

}  // namespace smp
