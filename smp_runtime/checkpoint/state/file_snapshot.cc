// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/state/file_snapshot.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include <ATen/ops/from_blob.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "smp_runtime/checkpoint/state/archive_file.h"
#include "smp_runtime/checkpoint/state/objects.h"
#include "smp_runtime/core/error.h"

namespace smp::checkpoint {

FileSnapshot::FileSnapshot(std::string name, std::string content,
                           std::shared_ptr<SnapshotMemory> memory)
    : name_(std::move(name)), content_(std::move(content)), memory_(std::move(memory)) {}

void FileSnapshot::add_storage(const at::Tensor& bytes) {
  SMP_CHECK(memory_ != nullptr && bytes.scalar_type() == at::kByte && bytes.is_contiguous(),
            "a storage of {} is no bytes", name_);
  const bool is_here = bytes.device().is_cpu();
  storages_.push_back(memory_->take(bytes.numel(), !is_here));
  const at::Tensor& copy = storages_.back().bytes();
  if (is_here) {
    if (bytes.numel() > 0) {
      std::memcpy(copy.mutable_data_ptr(), bytes.const_data_ptr(), bytes.nbytes());
    }
    return;
  }
  copy.copy_(bytes, /*non_blocking=*/true);
  if (std::ranges::find(devices_, bytes.device()) == devices_.end()) {
    devices_.push_back(bytes.device());
  }
}

std::shared_ptr<FileSnapshot> FileSnapshot::of_object(std::string name, const c10::IValue& object,
                                                      std::shared_ptr<SnapshotMemory> memory) {
  try {
    std::shared_ptr<FileSnapshot> file;
    with_pickled(object, [&](std::string_view pickle, Storages storages) {
      file = std::make_shared<FileSnapshot>(name, std::string(pickle), std::move(memory));
      for (const std::span<const std::byte> storage : storages) {
        auto* bytes = const_cast<std::byte*>(storage.data());  // read alone
        file->add_storage(at::from_blob(bytes, {static_cast<std::int64_t>(storage.size())},
                                        at::TensorOptions(at::kByte)));
      }
    });
    return file;
  } catch (const c10::Error& error) {
    throw HostError("cannot write {}: {}", name, error.what_without_backtrace());
  }
}

void FileSnapshot::wait() {
  for (const c10::Device& device : devices_) {
    const c10::impl::VirtualGuardImpl on(device.type());
    on.synchronizeStream(on.getStream(device));
  }
  devices_.clear();
}

FileDigest FileSnapshot::write(const std::filesystem::path& folder) const {
  if (!memory_) return write_file(folder / name_, content_);
  std::vector<std::span<const std::byte>> storages;
  for (const SnapshotMemory::Block& block : storages_) {
    storages.emplace_back(static_cast<const std::byte*>(block.bytes().const_data_ptr()),
                          block.bytes().nbytes());
  }
  return write_archive(folder / name_, content_, storages);
}

}  // namespace smp::checkpoint
