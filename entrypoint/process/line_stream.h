// SPDX-License-Identifier: Apache-2.0
// Turns the chunks that a pipe yields into lines, without changing a byte.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

namespace entrypoint {

enum class StreamKind { kOut = 0, kErr = 1 };

/// Pure: the caller tells the time.
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

}  // namespace entrypoint
