// SPDX-License-Identifier: Apache-2.0
// Both ends of a job's output: the chunks that a pipe yields, turned into lines without changing a
// byte, and our own streams, written without ever blocking the supervisor.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

namespace entrypoint {

enum class StreamKind { kOut = 0, kErr = 1 };

/// Lines out of the chunks that a pipe yields. Pure: the caller tells the time.
class LineStream {
 public:
  using Clock = std::chrono::steady_clock;

  /// A line that has not ended is shown after this long.
  static constexpr std::chrono::milliseconds kPartialLineAge{1000};
  /// A longer line is passed on in pieces of this size.
  static constexpr std::size_t kLongestLine = 64 * 1024;

  /// Gets a piece with its end mark (`\n` or `\r`) if it has one; `starts_line` is false for the
  /// rest of a line whose beginning was passed on before.
  using Emit = std::function<void(std::string_view piece, bool starts_line)>;

  explicit LineStream(Emit emit) : emit_(std::move(emit)) {}

  void append(std::string_view bytes, Clock::time_point now);

  /// Passes on an unfinished line that is old enough.
  void flush_aged(Clock::time_point now);

  /// Passes on whatever is left: the stream has ended.
  void finish();

  /// When flush_aged() would do something, or max().
  [[nodiscard]] Clock::time_point due() const;

 private:
  void emit(std::string_view piece);

  Emit emit_;
  std::string partial_;
  bool at_line_start_ = true;
  Clock::time_point partial_since_;
};

/// One of our own streams: a stuck reader slows the job down but must not delay a signal.
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
