// SPDX-License-Identifier: Apache-2.0
// The content of a file: as it was at one moment, or as it is when it is written.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "smp_runtime/checkpoint/atomic_file.h"
#include "smp_runtime/checkpoint/state/snapshot_memory.h"

namespace smp::checkpoint {

/// One thread at a time.
class FileContent {
 public:
  /// A file of torch.save, whose storages follow. They are copied into `memory`, or with none
  /// referred to: the file is then to be written before anything changes.
  static std::shared_ptr<FileContent> archive(std::string name, std::string pickle,
                                              std::shared_ptr<SnapshotMemory> memory);
  static std::shared_ptr<FileContent> text(std::string name, std::string text);

  /// The bytes of the storage that the pickle calls by the next number, on any device. On a GPU
  /// the copy follows what its stream has been told, and is there after wait().
  void add_storage(const at::Tensor& bytes);
  /// The file that write_object() would write of `object` now. Throws HostError for what no file
  /// can hold.
  static std::shared_ptr<FileContent> of_object(std::string name, const c10::IValue& object,
                                                std::shared_ptr<SnapshotMemory> memory);
  /// Blocks until all copies are there.
  void wait();

  [[nodiscard]] const std::string& name() const { return name_; }
  /// The file in `folder`. Throws HostError.
  [[nodiscard]] FileDigest write(const std::filesystem::path& folder) const;

 private:
  FileContent(std::string name, bool is_archive, std::string text,
              std::shared_ptr<SnapshotMemory> memory);

  const std::string name_;
  const bool is_archive_;
  const std::string text_;  ///< or the pickle
  const std::shared_ptr<SnapshotMemory> memory_;
  std::vector<SnapshotMemory::Block> storages_;
  std::vector<c10::Device> devices_;  ///< whose copies may be under way
};

}  // namespace smp::checkpoint
