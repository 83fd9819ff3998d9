// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/state/file_content.h"

#include <algorithm>
#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "smp_runtime/checkpoint/state/archive_file.h"
#include "smp_runtime/checkpoint/state/objects.h"
#include "smp_runtime/core/error.h"

namespace smp::checkpoint {

FileContent::FileContent(std::string name, bool is_archive, std::string text,
                         std::shared_ptr<SnapshotMemory> memory)
    : name_(std::move(name)),
      is_archive_(is_archive),
      text_(std::move(text)),
      memory_(std::move(memory)) {}

std::shared_ptr<FileContent> FileContent::archive(std::string name, std::string pickle,
                                                  std::shared_ptr<SnapshotMemory> memory) {
  return std::shared_ptr<FileContent>(
      new FileContent(std::move(name), true, std::move(pickle), std::move(memory)));
}

std::shared_ptr<FileContent> FileContent::text(std::string name, std::string text) {
  return std::shared_ptr<FileContent>(
      new FileContent(std::move(name), false, std::move(text), nullptr));
}

void FileContent::add_storage(const at::Tensor& bytes) {
  SMP_CHECK(is_archive_ && bytes.scalar_type() == at::kByte && bytes.is_contiguous(),
            "a storage of {} is no bytes", name_);
  if (!memory_) {
    storages_.emplace_back(bytes, nullptr);
    return;
  }
  const bool is_here = bytes.device().is_cpu();
  storages_.push_back(memory_->take(bytes.numel(), !is_here));
  const at::Tensor& copy = storages_.back().bytes();
  copy.copy_(bytes, /*non_blocking=*/true);
  if (is_here) return;
  if (std::ranges::find(devices_, bytes.device()) == devices_.end()) {
    devices_.push_back(bytes.device());
  }
}

std::shared_ptr<FileContent> FileContent::of_object(std::string name, const c10::IValue& object,
                                                    std::shared_ptr<SnapshotMemory> memory) {
  SMP_CHECK(memory != nullptr, "the storages of {} go when it is pickled", name);
  try {
    std::shared_ptr<FileContent> file;
    with_pickled(object, [&](std::string_view pickle, Storages storages) {
      file = archive(name, std::string(pickle), std::move(memory));
      for (const at::Tensor& storage : storages) file->add_storage(storage);
    });
    return file;
  } catch (const c10::Error& error) {
    throw HostError("cannot write {}: {}", name, error.what_without_backtrace());
  }
}

void FileContent::wait() {
  for (const c10::Device& device : devices_) {
    const c10::impl::VirtualGuardImpl on(device.type());
    on.synchronizeStream(on.getStream(device));
  }
  devices_.clear();
}

FileDigest FileContent::write(const std::filesystem::path& folder) const {
  SMP_CHECK(devices_.empty(), "copies for {} are under way", name_);
  if (!is_archive_) return write_file(folder / name_, text_);
  std::vector<at::Tensor> storages;
  for (const SnapshotMemory::Block& block : storages_) storages.push_back(block.bytes());
  return write_archive(folder / name_, text_, storages);
}

}  // namespace smp::checkpoint
