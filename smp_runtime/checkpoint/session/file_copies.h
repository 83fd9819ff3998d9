// SPDX-License-Identifier: Apache-2.0
// Files of a folder that every host has for itself, copied between hosts over the network.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "smp_runtime/checkpoint/copy_plan.h"
#include "smp_runtime/checkpoint/session/agreement.h"
#include "smp_runtime/core/file.h"
#include "smp_runtime/session/groups.h"
#include "smp_runtime/session/session.h"
#include "smp_runtime/topology/group_layout.h"

namespace smp::checkpoint {

/// A file that is being received, with room for all of it; it is removed unless it was kept.
class IncomingFile {
 public:
  /// Throws HostError where it cannot be made or has no room.
  IncomingFile(std::filesystem::path path, std::int64_t bytes);
  ~IncomingFile();
  IncomingFile(IncomingFile&& other) noexcept;
  IncomingFile(const IncomingFile&) = delete;
  IncomingFile& operator=(const IncomingFile&) = delete;
  IncomingFile& operator=(IncomingFile&&) = delete;

  /// Where its bytes go until it is whole.
  [[nodiscard]] const std::filesystem::path& draft() const { return draft_.path; }
  void keep();

 private:
  std::filesystem::path path_;
  Draft draft_;
};

/// One rank's part. Used by one thread at a time, which may be another one than that which trains.
class FileCopies {
 public:
  /// Makes a group of its own. Collective over the job, by the thread that trains.
  explicit FileCopies(session::Session& session);

  [[nodiscard]] const topology::GroupLayout& layout() const { return layout_; }

  /// Has `folder` of each host hold the files that ranks there want, each of which appears when it
  /// is whole. Blocks until all ranks have theirs, at most as long as any wait of the session.
  /// Ranks meet by `gather`. Collective over the job. Throws on all ranks: CheckpointError where a
  /// host has no room, before anything is sent; HostError for a lost rank, and for a file that
  /// nobody offers.
  void run(const GatherTexts& gather, const std::string& what, const std::filesystem::path& folder,
           const CopyWish& wish);

 private:
  void transfer(const std::string& what, const std::filesystem::path& folder,
                const std::vector<FileCopy>& plan,
                std::map<std::string, IncomingFile>& incoming) const;

  const int rank_;
  const topology::GroupLayout layout_;
  const session::GroupPtr group_;
};

}  // namespace smp::checkpoint
