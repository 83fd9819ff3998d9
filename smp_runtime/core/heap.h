// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace smp {

/// Bytes that the process has allocated from glibc's heap and not freed, on all threads. Takes some
/// microseconds. Thread-safe.
[[nodiscard]] int64_t heap_bytes();

}  // namespace smp
