// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/metrics/process_memory.h"

#include <optional>

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <malloc.h>
#include <sys/resource.h>

namespace smp::metrics {
namespace {

/// Statistics of torch's allocator over all tensors on a GPU; empty before the first.
std::optional<c10::CachingAllocator::Stat> tensors_on_gpu(c10::DeviceIndex device) {
  using c10::CachingAllocator::StatType;
  at::DeviceAllocator& allocator = *at::getDeviceAllocator(c10::DeviceType::CUDA);
  if (!allocator.initialized()) return std::nullopt;
  const auto stats = allocator.getDeviceStats(device);
  return stats.allocated_bytes[static_cast<std::size_t>(StatType::AGGREGATE)];
}

}  // namespace

std::int64_t peak_memory_bytes() {
  if (at::hasCUDA()) {
    const auto device = c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getDevice();
    const auto found = tensors_on_gpu(device.index());
    return found ? found->peak : 0;
  }
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return std::int64_t{1024} * use.ru_maxrss;
}

std::int64_t heap_bytes() {
  const struct mallinfo2 heap = mallinfo2();
  return static_cast<std::int64_t>(heap.uordblks + heap.hblkhd);  // of arenas, and by themselves
}

std::int64_t memory_in_use(c10::Device device) {
  if (!device.is_cuda()) return heap_bytes();
  const auto found = tensors_on_gpu(device.index());
  return found ? found->current : 0;
}

std::int64_t memory_of(c10::Device device) {
  if (!device.is_cuda()) return 0;
  const auto [left, all] =
      at::getDeviceAllocator(c10::DeviceType::CUDA)->getMemoryInfo(device.index());
  return static_cast<std::int64_t>(all);
}

}  // namespace smp::metrics
