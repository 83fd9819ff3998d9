// SPDX-License-Identifier: Apache-2.0
// Notices that another process of this host has ended, however it ended.
#pragma once

#include <sys/types.h>

namespace smp::transport {

/// Holds a pidfd, so that a process number used again is not taken for the old process.
class ProcessWatch {
 public:
  explicit ProcessWatch(pid_t process);
  ProcessWatch(ProcessWatch&& other) noexcept;
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;
  ProcessWatch& operator=(ProcessWatch&&) = delete;
  ~ProcessWatch();

  /// One system call; does not wait. A process that nobody has reaped yet has ended, too.
  [[nodiscard]] bool has_ended() const;

 private:
  pid_t process_;
  int file_;  // -1 where the kernel has no pidfd
};

}  // namespace smp::transport
