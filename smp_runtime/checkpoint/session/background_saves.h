// SPDX-License-Identifier: Apache-2.0
// Saves that are written and published while the job goes on.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "smp_runtime/checkpoint/session/checkpoint_save.h"
#include "smp_runtime/checkpoint/session/store_rounds.h"
#include "smp_runtime/checkpoint/state/file_content.h"
#include "smp_runtime/checkpoint/state/snapshot_memory.h"

namespace smp::checkpoint {

/// One rank's part: a thread that writes one save after the other, in the order in which all ranks
/// began them, and that needs no interpreter. Functions are called by the thread that trains.
class BackgroundSaves {
 public:
  /// At most `limit` saves are under way. The session has to outlive this.
  BackgroundSaves(session::Session& session, int limit);
  /// Calls close(). A forked child leaves all of it to the parent.
  ~BackgroundSaves();
  BackgroundSaves(const BackgroundSaves&) = delete;
  BackgroundSaves& operator=(const BackgroundSaves&) = delete;

  [[nodiscard]] const std::shared_ptr<SnapshotMemory>& memory() const { return memory_; }
  /// True while one is not published.
  [[nodiscard]] bool are_under_way();
  /// Blocks until another save may begin. Throws what an earlier one failed with, once: on all
  /// ranks, since all of them fail together.
  void await_room();
  /// Writes `files` into the folder of `save`, and calls `publish` with it when all ranks have.
  /// Blocks until the copies are there.
  void add(std::shared_ptr<CheckpointSave> save, std::vector<std::shared_ptr<FileContent>> files,
           std::function<void(CheckpointSave& save)> publish);
  /// Blocks until all are published. Throws as await_room().
  void wait();
  /// Gives up what is not published: nothing of it is left. Nothing may be added then.
  void close();

 private:
  struct Job {
    std::shared_ptr<CheckpointSave> save;
    std::vector<std::shared_ptr<FileContent>> files;
    std::function<void(CheckpointSave&)> publish;
  };

  /// What the thread uses, too.
  struct Shared {
    std::optional<StoreRounds> rounds;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Job> jobs;  ///< the first is being written
    std::exception_ptr failure;
    bool ends = false;
    std::thread thread;
  };

  void await_fewer_than(std::size_t count);
  void run();
  void write(Job& job);

  session::Session& session_;
  const std::size_t limit_;
  const int process_;
  const std::shared_ptr<SnapshotMemory> memory_ = std::make_shared<SnapshotMemory>();
  std::unique_ptr<Shared> shared_ = std::make_unique<Shared>();
};

}  // namespace smp::checkpoint
