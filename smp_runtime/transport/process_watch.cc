// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/process_watch.h"

#include <cerrno>
#include <csignal>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace smp::transport {

ProcessWatch::ProcessWatch(pid_t process)
    : process_(process), file_(static_cast<int>(syscall(SYS_pidfd_open, process, 0))) {}

bool ProcessWatch::has_ended() const {
  if (!file_.is_open()) return kill(process_, 0) != 0 && errno == ESRCH;
  pollfd ended{.fd = file_.get(), .events = POLLIN, .revents = 0};
  return poll(&ended, 1, 0) > 0;
}

}  // namespace smp::transport
