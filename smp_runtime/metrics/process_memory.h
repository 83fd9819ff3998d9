// SPDX-License-Identifier: Apache-2.0
// Memory in use by this process, and memory of devices. [bytes]
#pragma once

#include <cstdint>

#include <c10/core/Device.h>

namespace smp::metrics {

/// At most so far: of this thread's GPU where there is one, else of the process.
std::int64_t peak_memory_bytes();

/// Allocated and not freed, on all threads, in glibc's heap. Takes some microseconds.
std::int64_t heap_bytes();

/// Tensors on a GPU, or else heap_bytes().
std::int64_t memory_in_use(c10::Device device);

/// All memory of a GPU; 0 for the CPU.
std::int64_t memory_of(c10::Device device);

}  // namespace smp::metrics
