// SPDX-License-Identifier: Apache-2.0
// Copies files aside and uploads the copies, one after the other.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include <sys/types.h>

namespace entrypoint::fetch {

/// Uploads a file under a name relative to the watched folder. Throws what it likes.
using Upload = std::function<void(const std::filesystem::path& file, const std::string& name)>;

/// add() and finish() from one thread; the upload runs on the queue's own. A file that changes
/// while it waits is uploaded once, as it last was. Errors are logged and end nothing.
class UploadQueue {
 public:
  /// Copies go to `staging`, which is made, mode 0700.
  UploadQueue(std::filesystem::path folder, std::filesystem::path staging, Upload upload);
  /// Waits for the upload that runs, drops the rest, removes the staging folder.
  ~UploadQueue();
  UploadQueue(const UploadQueue&) = delete;
  UploadQueue& operator=(const UploadQueue&) = delete;

  /// Copies a file below the folder. Blocks for as long as the copy takes.
  void add(const std::filesystem::path& file);

  /// The same, unless this very state of the file was taken before and its upload did not fail. Not
  /// for files that were just written: two states within one tick of the clock look the same.
  void add_if_changed(const std::filesystem::path& file);

  /// Waits until everything is uploaded. The caller's own process is what is ended at a deadline.
  void finish();

  [[nodiscard]] int uploaded() const;
  /// Files whose last state could not be uploaded.
  [[nodiscard]] int failed() const;

 private:
  /// Tells one state of a file from another.
  struct State {
    ino_t inode = 0;
    off_t size = 0;
    long seconds = 0;
    long nanoseconds = 0;
    bool operator==(const State&) const = default;
  };
  struct Item {
    std::string name;
    std::filesystem::path copy;
  };
  static std::optional<State> state_of(const std::filesystem::path& file);
  [[nodiscard]] std::string name_of(const std::filesystem::path& file) const;
  void run();

  std::filesystem::path folder_;
  std::filesystem::path staging_;
  Upload upload_;
  std::map<std::string, State> taken_;  // of the adding thread

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Item> waiting_;
  bool is_busy_ = false;
  bool closing_ = false;
  int uploaded_ = 0;
  std::set<std::string> failed_;  // names whose last upload failed

  std::thread worker_;  // last: it uses all of the above
};

/// `2026-11-21-01-55-15-423000.name` in UTC: copies of one name stay apart, and in order.
std::string staged_name(std::int64_t microseconds_since_1970, const std::string& name);

}  // namespace entrypoint::fetch
