// SPDX-License-Identifier: Apache-2.0
// What is worth remembering of a job's output, in bounded memory, for the day it fails.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "entrypoint/supervise/rank_tags.h"
#include "entrypoint/supervise/traceback_collector.h"

namespace entrypoint::supervise {

enum class StreamKind { kOut = 0, kErr = 1 };

class OutputRecord {
 public:
  static constexpr std::size_t kErrLines = 200;
  static constexpr std::size_t kOutLines = 50;
  static constexpr std::size_t kTellingLines = 30;
  static constexpr std::size_t kLongestLine = 2048;  ///< [bytes]; the rest of a line is dropped
  static constexpr std::size_t kRanks = 8192;        ///< told apart; more count as nobody's
  static constexpr int kNoRank = -1;

  /// Calls it with each whole line as it comes, and its rank or kNoRank.
  void watch(std::function<void(int rank, std::string_view line)> watcher) {
    watcher_ = std::move(watcher);
  }

  /// A piece of a line; `tag` says which rank's, none: nobody's in particular. Remembered as
  /// plain_text(). A line that torch marks (`[rank3]: …`) counts as that rank's.
  void add(StreamKind stream, const RankTag* tag, std::string_view piece);

  /// Lines without a tag count as rank kNoRank. The first cause first: an exception that blames
  /// another rank comes behind all others, whenever it was seen; then the rank that mpirun blames;
  /// then in order of their tracebacks.
  struct RankTraceback {
    int rank = kNoRank;
    const Traceback* traceback = nullptr;
  };
  [[nodiscard]] std::vector<RankTraceback> tracebacks() const;

  /// The rank that mpirun or MPI_Abort names as the first to fail, or kNoRank.
  [[nodiscard]] int blamed_rank() const { return blamed_rank_; }

  /// The host whose daemon mpirun lost, as it names it; empty while it lost none.
  [[nodiscard]] const std::string& lost_host() const { return lost_host_; }

  /// The last lines that a rank wrote to its stderr, else to its stdout; oldest first, tags kept.
  [[nodiscard]] std::vector<std::string> last_words(int rank) const;

  /// The last lines of a stream, oldest first.
  [[nodiscard]] const std::deque<std::string>& lines(StreamKind stream) const {
    return streams_[static_cast<std::size_t>(stream)].lines;
  }

  /// The last lines that look like a cause: NCCL, CUDA, crashes, mpirun's own words.
  [[nodiscard]] const std::deque<std::string>& telling_lines() const { return telling_; }

  /// Whether a telling line is mpirun's: it says that a rank failed, seldom why.
  static bool is_mpiruns(std::string_view telling_line);

 private:
  struct Stream {
    std::map<std::string, std::string> unfinished;  ///< by tag
    std::deque<std::string> lines;
  };
  static constexpr std::size_t kLastWords = 5;
  struct Rank {
    TracebackCollector out;
    TracebackCollector err;
    std::array<std::deque<std::string>, 2> last_words;  ///< by StreamKind
    long order = 0;                                     ///< when its last traceback was seen
  };

  void add_line(StreamKind stream, const RankTag* tag, std::string_view bytes);
  void note_blame(std::string_view text);
  void note_lost_host(std::string_view text);

  std::function<void(int, std::string_view)> watcher_;
  std::array<Stream, 2> streams_;
  std::map<int, Rank> ranks_;
  std::deque<std::string> telling_;
  int blamed_rank_ = kNoRank;
  bool daemon_lost_ = false;
  std::string lost_host_;
  long lines_seen_ = 0;
};

}  // namespace entrypoint::supervise
