// SPDX-License-Identifier: Apache-2.0
// Puts the lines of ranks together again. mpirun tags every fragment that it reads from a rank, so
// the words of an unbuffered print() come out as `[1,0]<stdout>:loss[1,1]<stdout>:loss[1,0]…`.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "entrypoint/process/rank_tags.h"
#include "entrypoint/process/streams.h"

namespace entrypoint {

/// One of mpirun's two streams, split by rank. Pure: the caller tells the time.
class RankLines {
 public:
  /// A piece of a rank's line, as LineStream gives it; no tag: mpirun's own words.
  using Emit = std::function<void(const RankTag* tag, std::string_view piece, bool starts_line)>;

  RankLines(TagEnd end, Emit emit) : end_(end), emit_(std::move(emit)) {}

  /// A piece of mpirun's output, as LineStream gives it: at most one line, whole or aged.
  void append(std::string_view piece, LineStream::Clock::time_point now);

  void flush_aged(LineStream::Clock::time_point now);
  void finish();
  [[nodiscard]] LineStream::Clock::time_point due() const;

 private:
  struct Source {
    std::optional<RankTag> tag;
    LineStream lines;
  };

  LineStream& lines_of(const std::optional<RankTag>& tag);

  TagEnd end_;
  Emit emit_;
  std::map<std::string, Source> sources_;  ///< by tag; mpirun itself under ""
  std::optional<RankTag> speaker_;         ///< of the line that has not ended
};

}  // namespace entrypoint
