// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/process/streams.h"

#include <algorithm>
#include <cerrno>
#include <climits>

#include <poll.h>
#include <unistd.h>

namespace entrypoint {

void LineStream::emit(std::string_view piece) {
  emit_(piece, at_line_start_);
  at_line_start_ = piece.back() == '\n' || piece.back() == '\r';
}

void LineStream::append(std::string_view bytes, Clock::time_point now) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find_first_of("\n\r");
    const std::size_t count = end == std::string_view::npos ? bytes.size() : end + 1;
    if (partial_.empty()) partial_since_ = now;
    if (end != std::string_view::npos && partial_.empty()) {
      emit(bytes.substr(0, count));
    } else {
      partial_.append(bytes.substr(0, count));
      if (end != std::string_view::npos || partial_.size() >= kLongestLine) finish();
    }
    bytes.remove_prefix(count);
  }
}

void LineStream::flush_aged(Clock::time_point now) {
  if (now >= due()) finish();
}

void LineStream::finish() {
  if (partial_.empty()) return;
  emit(partial_);
  partial_.clear();
}

LineStream::Clock::time_point LineStream::due() const {
  return partial_.empty() ? Clock::time_point::max() : partial_since_ + kPartialLineAge;
}

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
