// SPDX-License-Identifier: Apache-2.0
// One of our own output streams, written without ever blocking the supervisor: a stuck reader slows
// the job down but must not delay a signal.
#pragma once

#include <string>
#include <string_view>

namespace entrypoint {

class OutputSink {
 public:
  /// Above this the pipes that feed the sink are left unread, so that the job feels the pressure.
  static constexpr std::size_t kHighWater = 256 * 1024;

  /// Does not own `fd`.
  explicit OutputSink(int fd) : fd_(fd) {}

  /// Keeps the bytes for flush(): many short lines then cost one system call.
  void write(std::string_view bytes) { pending_.append(bytes); }

  /// Writes as much as `fd` takes without blocking.
  void flush();

  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] bool has_pending() const { return !pending_.empty(); }
  [[nodiscard]] bool is_full() const { return pending_.size() >= kHighWater; }

 private:
  int fd_;
  std::string pending_;
};

}  // namespace entrypoint
