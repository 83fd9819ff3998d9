// SPDX-License-Identifier: Apache-2.0
// Checkpoints in the memory of the job's hosts, for a restart that reads no disk (Gemini, SOSP
// '23).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "smp_runtime/checkpoint/session/checkpoint_save.h"
#include "smp_runtime/checkpoint/session/file_copies.h"

namespace smp::checkpoint {

/// Every host has a folder in its memory, with the files of its own ranks and those of a neighbour
/// host's, so that all are left when one host is lost. One rank's part; functions are called by one
/// thread at a time.
class MemoryCheckpoints {
 public:
  /// Of the checkpoints that the job keeps at `path` on the disk, within SMP_MEMORY_FOLDER. What is
  /// there at the first start of a job is another one's, and is removed. Collective over the job.
  /// The session has to outlive this. Throws ConfigError where no folder is named.
  MemoryCheckpoints(session::Session& session, const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& root() const { return root_; }
  /// Counts a call; true for every one at which a state is to be kept, by the session's options.
  [[nodiscard]] bool is_due() { return ++calls_ % session_.options().checkpoint_memory == 0; }
  /// The name of the next save, which is `by_host`.
  [[nodiscard]] std::string next_name();
  /// Ends a save of that name in which all ranks have written their files: they are copied to the
  /// neighbours, then the older checkpoint goes. Collective over the job.
  void publish(CheckpointSave& save);

  /// The folder here of the newest checkpoint that the hosts together hold whole, with its manifest
  /// and those of its files that this host has; empty where they hold none. Collective over the
  /// job.
  [[nodiscard]] std::filesystem::path newest(const std::string& what);
  /// Has `files` of that folder, of which all hosts hold a part, here. Collective over the job.
  /// Throws CheckpointError on all ranks where a host has no room.
  void fetch(const std::string& what, const std::filesystem::path& folder,
             const std::vector<std::string>& files);

  /// Removes what this host holds. Others need not call it: what is not whole counts for nothing.
  void discard();

 private:
  [[nodiscard]] bool leads() const { return copies_.layout().my_local() == 0; }

  session::Session& session_;
  const std::filesystem::path root_;
  FileCopies copies_;
  std::int64_t number_ = 0;  ///< of the last save
  std::int64_t calls_ = 0;
};

}  // namespace smp::checkpoint
