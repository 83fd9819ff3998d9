// SPDX-License-Identifier: Apache-2.0
// The part of a job's output that is worth remembering, in bounded memory, for the day it fails.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "entrypoint/job/failure/process_record.h"
#include "entrypoint/job/failure/reported_end.h"
#include "entrypoint/process/rank_tags.h"

namespace entrypoint {

class OutputRecord {
 public:
  static constexpr std::size_t kErrLines = 200;
  static constexpr std::size_t kOutLines = 50;
  static constexpr std::size_t kTellingLines = 30;
  static constexpr std::size_t kLongestLine = ProcessRecord::kLongestLine;
  /// Longest part of a line that is read [bytes]: a structured log has a whole traceback in one.
  static constexpr std::size_t kLongestRead = 32 * 1024;
  static constexpr std::size_t kRanks = 8192;  ///< told apart; more count as nobody's
  static constexpr int kNoRank = -1;

  /// Calls it with each whole line as it comes, and its rank or kNoRank.
  void watch(std::function<void(int rank, std::string_view line)> watcher) {
    watcher_ = std::move(watcher);
  }

  /// From now on lines without a tag are mpirun's own, which refuses in boxes.
  void expect_mpirun() { reports_.expect_mpirun(); }

  /// Forgets what was said: the program is started again.
  void begin_again();

  /// A piece of a line; `tag` says which rank's, none: nobody's in particular. Remembered as
  /// plain_text(). A line that torch marks (`[rank3]: …`) counts as that rank's. What a carriage
  /// return takes back, as progress bars do, is not remembered.
  void add(StreamKind stream, const RankTag* tag, std::string_view piece);

  /// Output by rank; under kNoRank output without a tag: the only process's, all workers' of
  /// torchrun, mpirun's own.
  [[nodiscard]] const std::map<int, ProcessRecord>& processes() const { return processes_; }

  /// Ends of ranks, as their launcher reports them.
  [[nodiscard]] const EndReports& reports() const { return reports_; }

  /// The last lines of a stream, oldest first.
  [[nodiscard]] const std::deque<std::string>& lines(StreamKind stream) const {
    return streams_[static_cast<std::size_t>(stream)].lines;
  }

  /// The last lines that look like a crash (is_telling()), and mpirun's own words.
  [[nodiscard]] const std::deque<std::string>& telling_lines() const { return telling_; }

 private:
  struct Unfinished {
    std::string text;
    bool taken_back = false;  ///< ended by a carriage return; a line feed behind it makes it good
  };
  struct Stream {
    std::map<std::string, Unfinished> unfinished;  ///< by tag
    std::deque<std::string> lines;
  };

  void add_line(StreamKind stream, const RankTag* tag, std::string_view bytes);

  std::function<void(int, std::string_view)> watcher_;
  std::array<Stream, 2> streams_;
  std::map<int, ProcessRecord> processes_;
  std::deque<std::string> telling_;
  EndReports reports_;
  long lines_seen_ = 0;
};

/// Valid UTF-8 (bytes that are not become U+FFFD) without terminal sequences (colours, cursor
/// moves, titles) and without control characters other than tab and newline. Pure.
std::string plain_text(std::string_view text);

}  // namespace entrypoint
