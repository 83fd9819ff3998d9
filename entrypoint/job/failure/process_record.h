// SPDX-License-Identifier: Apache-2.0
// The part of one process's output that tells of its end, in bounded memory.
#pragma once

#include <array>
#include <deque>
#include <string>
#include <string_view>

#include "entrypoint/job/failure/traceback_collector.h"
#include "entrypoint/process/streams.h"

namespace entrypoint {

class ProcessRecord {
 public:
  static constexpr std::size_t kWords = 8;   ///< last lines kept of each stream
  static constexpr std::size_t kErrors = 8;  ///< of lines that say what failed

  /// Output of the process after the last line of its last traceback, or all of its output.
  struct Since {
    StreamKind stream = StreamKind::kErr;  ///< of the traceback
    long words = 0;                        ///< lines of kind kWords on that stream
    long other_words = 0;                  ///< on the other one
    std::size_t other_bytes = 0;
    bool trained = false;  ///< it told of a step
    long errors = 0;
  };

  /// A longer line is kept cut off [bytes].
  static constexpr std::size_t kLongestLine = 2048;

  struct Line {
    StreamKind stream = StreamKind::kErr;
    std::string_view text;      ///< whole, in plain text
    long order = 0;             ///< counts all lines of the job
    bool is_launchers = false;  ///< tells of ranks, and is no word of this process
  };
  void add(const Line& line);

  /// The last one on stderr, or on stdout where stderr has none: scripts send one to the other.
  /// Null: none.
  [[nodiscard]] const Traceback* traceback() const;
  [[nodiscard]] const Since& since_traceback() const { return since_; }
  [[nodiscard]] long traceback_order() const { return traceback_order_; }

  /// The exception that a parent raised since its child had failed; null: none.
  [[nodiscard]] const Traceback* report() const;

  /// The last lines of stderr, else of stdout, since its last traceback, that are neither noise nor
  /// a report; where there are none, the last ones of any kind. Oldest first.
  [[nodiscard]] std::deque<std::string> last_words() const;

  /// The last lines that say what failed, since the last traceback, oldest first; of a program that
  /// pip started, the first ones since pip began to quote it.
  [[nodiscard]] const std::deque<std::string>& errors() const { return errors_; }
  [[nodiscard]] bool quotes_program() const { return quotes_; }
  /// True if the last of errors() is among the last words.
  [[nodiscard]] bool ends_with_error() const { return words_since_error_ <= kWords; }

  /// The last lines that look like a crash, since the last traceback; oldest first.
  [[nodiscard]] const std::deque<std::string>& telling() const { return telling_; }

 private:
  std::array<TracebackCollector, 2> tracebacks_;  ///< by StreamKind
  std::array<std::deque<std::string>, 2> words_;
  std::array<std::deque<std::string>, 2> others_;
  std::deque<std::string> errors_;
  std::deque<std::string> telling_;
  bool quotes_ = false;  ///< pip repeats what a program wrote
  std::size_t words_since_error_ = 0;
  Since since_;
  std::array<long, 2> block_order_{};  ///< of the last header of each stream, or behind it
  long traceback_order_ = 0;
};

/// Adds a line behind the others, of which at most `limit` stay.
inline void push_bounded(std::deque<std::string>& lines, std::string_view line, std::size_t limit) {
  if (lines.size() == limit) lines.pop_front();
  lines.emplace_back(line);
}

/// True if a line looks like a crash's: NCCL, CUDA, C++, the kernel. Pure.
bool is_telling(std::string_view text);

}  // namespace entrypoint
