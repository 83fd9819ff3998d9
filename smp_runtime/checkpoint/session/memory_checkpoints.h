// SPDX-License-Identifier: Apache-2.0
// Checkpoints in the memory of the job's hosts, for a restart that reads no disk (Gemini, SOSP
// '23).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "smp_runtime/checkpoint/session/background_saves.h"
#include "smp_runtime/checkpoint/session/checkpoint_save.h"
#include "smp_runtime/checkpoint/session/file_copies.h"

namespace smp::checkpoint {

/// Every host has a folder in its memory, with the files of its own ranks and those of a neighbour
/// host's, so that all are left when one host is lost. One rank's part. All calls are collective
/// over the job; the thread that trains makes them while no save is under way, but for publish().
class MemoryCheckpoints {
 public:
  /// Of the checkpoints that the job keeps at `path` on the disk, within SMP_MEMORY_FOLDER. What is
  /// there when rank 0 starts for the first time is another job's, and is removed. The session has
  /// to outlive this. Throws ConfigError where no folder is named.
  MemoryCheckpoints(session::Session& session, const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& root() const { return root_; }

  /// Counts a call; true for those at which a state is to be kept, by the session's options: where
  /// one of `saves` is under way the next call at which none is. Throws what a save failed with.
  [[nodiscard]] bool is_due(BackgroundSaves& saves);
  /// The name of the next save, which is `by_host`.
  [[nodiscard]] std::string next_name();
  /// Ends a save of that name in which all ranks have written their files: they are copied to the
  /// neighbours, then the older checkpoint goes. By the thread that writes.
  void publish(CheckpointSave& save);

  /// The folder here of the newest checkpoint that the hosts together hold whole, with its manifest
  /// and those of its files that this host has. Empty where they hold none, or where the newest
  /// checkpoint on the disk, as rank 0 sees it, is not the one that was the newest at that save.
  [[nodiscard]] std::filesystem::path newest(const std::string& what);
  /// Has `files` of that folder here. Throws CheckpointError on all ranks where a host has no room.
  void fetch(const std::string& what, const std::filesystem::path& folder,
             const std::vector<std::string>& files);

 private:
  [[nodiscard]] bool leads() const { return copies_.layout().my_local() == 0; }
  [[nodiscard]] bool is_first() const { return copies_.layout().rank == 0; }

  session::Session& session_;
  const std::filesystem::path path_;
  FileCopies copies_;
  std::filesystem::path root_;
  std::string start_;        ///< of this start of the job alone
  std::int64_t number_ = 0;  ///< of the last save
  std::int64_t calls_ = 0;
  bool is_due_ = false;
};

}  // namespace smp::checkpoint
