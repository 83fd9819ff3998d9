// SPDX-License-Identifier: Apache-2.0
// Notices that another process of this host has ended, however it ended.
#pragma once

#include <cerrno>
#include <csignal>

#include <poll.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "smp_runtime/core/file.h"

namespace smp::transport {

/// Holds a pidfd, so that a process number used again is not taken for the old process.
class ProcessWatch {
 public:
  explicit ProcessWatch(pid_t process)
      : process_(process), file_(static_cast<int>(syscall(SYS_pidfd_open, process, 0))) {}

  /// One system call; does not wait. A process that nobody has reaped yet has ended, too.
  [[nodiscard]] bool has_ended() const {
    if (!file_.is_open()) return kill(process_, 0) != 0 && errno == ESRCH;
    pollfd ended{.fd = file_.get(), .events = POLLIN, .revents = 0};
    return poll(&ended, 1, 0) > 0;
  }

 private:
  pid_t process_;
  FileDescriptor file_;  // not open where the kernel has no pidfd
};

}  // namespace smp::transport
