// SPDX-License-Identifier: Apache-2.0
// Notices that another process of this host has ended, however it ended.
#pragma once

#include <sys/types.h>

#include "smp_runtime/core/file_descriptor.h"

namespace smp::transport {

/// Holds a pidfd, so that a process number used again is not taken for the old process.
class ProcessWatch {
 public:
  explicit ProcessWatch(pid_t process);

  /// One system call; does not wait. A process that nobody has reaped yet has ended, too.
  [[nodiscard]] bool has_ended() const;

 private:
  pid_t process_;
  FileDescriptor file_;  // not open where the kernel has no pidfd
};

}  // namespace smp::transport
