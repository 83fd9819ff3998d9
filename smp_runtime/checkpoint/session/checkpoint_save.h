// SPDX-License-Identifier: Apache-2.0
// One save of a checkpoint by all ranks: staged, written, published in one step, or not at all.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "smp_runtime/checkpoint/atomic_file.h"
#include "smp_runtime/checkpoint/manifest.h"
#include "smp_runtime/checkpoint/session/agreement.h"
#include "smp_runtime/session/session.h"

namespace smp::checkpoint {

/// All ranks of the job make the same calls; each blocks until all have come. What fails on one of
/// them throws on all: HostError, which names the rank, or there what was thrown. Then, and without
/// a publication, nothing is left behind.
class CheckpointSave {
 public:
  struct Options {
    std::string what;  ///< begins errors
    std::filesystem::path root;
    std::string name;      ///< of the checkpoint, within `root`
    std::string library;   ///< version that writes it
    bool tidies = true;    ///< removes what killed saves left: no other save is under way
    bool by_host = false;  ///< each host has a root of its own, whose paths end alike
  };

  /// Throws ConfigError if ranks save different checkpoints.
  CheckpointSave(session::Session& session, Options options);
  ~CheckpointSave();
  CheckpointSave(const CheckpointSave&) = delete;
  CheckpointSave& operator=(const CheckpointSave&) = delete;

  [[nodiscard]] const Options& options() const { return options_; }
  /// The folder that files are written to.
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  /// True if this rank makes the checkpoint visible: one does in each folder, which is one in the
  /// job where all hosts see the same folder.
  [[nodiscard]] bool publishes() const { return publishes_; }
  /// From now on ranks meet by `gather`: as a thread of its own has to.
  void meet_by(GatherTexts gather) { gather_ = std::move(gather); }
  [[nodiscard]] const GatherTexts& gather() const { return gather_; }
  /// This rank has written a file.
  void add(FileDigest file) { written_.push_back(std::move(file)); }

  /// Collective: tells the others what failed here, empty if nothing, and hears what failed there.
  /// Throws CheckpointError where one of all failed; nothing is left behind then.
  void tell(const std::string& error);
  /// Files that `rank` had written at the last tell().
  [[nodiscard]] std::vector<FileDigest> written_by(int rank) const;
  /// Calls `act`, which may throw, and tell() with what it threw. See the class.
  void together(const std::function<void()>& act);
  /// The folder becomes the checkpoint, with all files that were added and a manifest. Of earlier
  /// ones so many are kept that `kept` remain; all without it.
  void publish_folder(std::optional<int> kept = std::nullopt);
  /// The files become files of `root`, with a manifest of that name.
  void publish_files(const std::string& manifest);

 private:
  using Publish = void (*)(const std::filesystem::path&, const std::string&, const std::string&);

  [[nodiscard]] std::vector<FileDigest> files_by_name() const;
  void publish(const std::string& manifest, Publish move, std::optional<int> kept);
  void discard();

  session::Session& session_;
  const Options options_;
  GatherTexts gather_;
  std::string token_;
  std::filesystem::path folder_;
  bool publishes_ = false;
  bool is_published_ = false;
  std::vector<FileDigest> written_;
  std::vector<std::string> all_written_;  ///< by rank, at the last tell(); few ranks read them
};

}  // namespace smp::checkpoint
