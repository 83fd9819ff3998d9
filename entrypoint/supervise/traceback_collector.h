// SPDX-License-Identifier: Apache-2.0
// The last Python traceback of one process, picked out of its output line by line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace entrypoint::supervise {

struct Traceback {
  std::vector<std::string> lines;  ///< from "Traceback (most…" to the exception line

  /// The exception line, e.g. "ValueError: boom"; empty if the block was cut off.
  [[nodiscard]] std::string_view exception() const;
};

class TracebackCollector {
 public:
  /// Keeps memory bounded for a recursion thousands of frames deep: the first and the last half of
  /// this many lines stay.
  static constexpr std::size_t kLongest = 120;

  /// One whole line, without its end mark and rank tag.
  void add(std::string_view line);

  /// The last complete block, or the one that is being read when none is complete.
  [[nodiscard]] const Traceback& last() const { return last_.lines.empty() ? open_ : last_; }
  [[nodiscard]] bool empty() const { return last().lines.empty(); }

 private:
  void keep(std::string_view line);

  bool inside_ = false;
  Traceback open_;
  Traceback last_;
};

}  // namespace entrypoint::supervise
