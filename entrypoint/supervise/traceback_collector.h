// SPDX-License-Identifier: Apache-2.0
// The last Python traceback of one process, picked out of its output line by line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace entrypoint::supervise {

/// Whether a line begins with the name of a type and a colon, or is nothing but one:
/// "ValueError: boom", "torch.OutOfMemoryError: …", "KeyError".
bool names_exception(std::string_view line);

struct Traceback {
  std::vector<std::string> lines;  ///< from "Traceback (most…" to the exception line

  /// The exception line, e.g. "ValueError: boom"; empty if the block was cut off.
  [[nodiscard]] std::string_view exception() const;
};

/// Knows the forms that real jobs print: plain; after a prefix that each line repeats, as torch
/// ("[rank3]: "), pip (indented) and exception groups ("  | ") write it; and after a logger's
/// prefix on the first line alone. A launcher's own traceback which only says that another process
/// failed (torchrun's ChildFailedError, subprocess.CalledProcessError) does not replace the cause.
class TracebackCollector {
 public:
  /// Keeps memory bounded for a recursion thousands of frames deep: the first and the last half of
  /// this many lines stay.
  static constexpr std::size_t kLongest = 120;

  /// One whole line, without its end mark and rank tag.
  void add(std::string_view line);

  /// The last complete block, or the one that is being read when none is complete. torchrun's
  /// report on its workers does not replace what a worker said.
  [[nodiscard]] const Traceback& last() const { return last_.lines.empty() ? open_ : last_; }
  [[nodiscard]] bool empty() const { return last().lines.empty(); }

 private:
  void begin(std::string_view prefix);
  void keep(std::string_view line);
  void finish();

  bool inside_ = false;
  std::string prefix_;  ///< what each line of the open block may repeat
  Traceback open_;
  Traceback last_;
};

}  // namespace entrypoint::supervise
