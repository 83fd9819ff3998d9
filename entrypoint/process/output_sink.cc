// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/process/output_sink.h"

#include <algorithm>
#include <cerrno>
#include <climits>

#include <poll.h>
#include <unistd.h>

namespace entrypoint {

void OutputSink::flush() {
  // The descriptor is shared with whoever started us, so it stays in blocking mode; a pipe that
  // poll() calls writable takes PIPE_BUF bytes without blocking.
  std::size_t done = 0;
  while (done < pending_.size()) {
    pollfd ready{.fd = fd_, .events = POLLOUT, .revents = 0};
    if (poll(&ready, 1, 0) <= 0) break;
    const std::size_t size = std::min<std::size_t>(pending_.size() - done, PIPE_BUF);
    const ssize_t count = ::write(fd_, pending_.data() + done, size);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) break;
    if (count < 0) {
      done = pending_.size();  // nobody reads any more: the job goes on without an audience
      break;
    }
    done += static_cast<std::size_t>(count);
  }
  pending_.erase(0, done);
}

}  // namespace entrypoint
