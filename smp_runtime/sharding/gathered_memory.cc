// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/gathered_memory.h"

#include <utility>

#include <c10/core/DeviceGuard.h>
#include <malloc.h>

#include "smp_runtime/core/error.h"

namespace smp::sharding {
namespace {

constexpr std::size_t kSpares = 2;
constexpr int kLargeBlock = 512 * 1024;  // bytes; fresh pages of it cost less than to move it

// A script may have moved a gathered unit to shared memory, which has none.
c10::Allocator* allocator_of(c10::StorageImpl& storage) {
  c10::Allocator* own = storage.allocator();
  return own != nullptr ? own : c10::GetAllocator(storage.device_type());
}

}  // namespace

void GatheredMemory::keep_heap_small() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, kLargeBlock);
#endif
}

void GatheredMemory::give(const at::Tensor& tensor, std::int64_t elements) {
  const c10::DeviceGuard guard(tensor.device());  // or the allocator takes the current one
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  SMP_CHECK(storage->nbytes() == 0, "a unit that has memory was given more");
  const std::size_t bytes = static_cast<std::size_t>(elements) * tensor.element_size();
  const auto found = spare_.find(bytes);
  if (found != spare_.end()) {
    storage->set_data_ptr_noswap(std::move(found->second));
    spare_.erase(found);
  } else {
    storage->set_data_ptr_noswap(allocator_of(*storage)->allocate(bytes));
  }
  storage->set_nbytes(bytes);
}

void GatheredMemory::take_away(const at::Tensor& tensor) {
  const c10::DeviceGuard guard(tensor.device());
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  const std::size_t bytes = storage->nbytes();
  c10::DataPtr memory = storage->set_data_ptr(allocator_of(*storage)->allocate(0));
  storage->set_nbytes(0);
  const bool keep = storage->device_type() == c10::DeviceType::CPU;
  if (keep && spare_.count(bytes) < kSpares) spare_.emplace(bytes, std::move(memory));
}

std::int64_t GatheredMemory::spare_bytes() const {
  std::int64_t sum = 0;
  for (const auto& [bytes, memory] : spare_) sum += static_cast<std::int64_t>(bytes);
  return sum;
}

}  // namespace smp::sharding
