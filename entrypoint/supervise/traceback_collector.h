// SPDX-License-Identifier: Apache-2.0
// The last Python traceback of one process, picked out of its output line by line.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace entrypoint::supervise {

bool holds_one_of(std::string_view text, std::span<const std::string_view> words);

/// Whether a line begins with the name of a type and a colon, or is nothing but one:
/// "ValueError: boom", "torch.OutOfMemoryError: …", "KeyError".
bool names_exception(std::string_view line);

/// Whether an exception says only that another rank failed or was lost, so that the cause is to be
/// looked for there: SMPConnectionError, "rank 1 failed in …", gloo's and NCCL's lost connections.
bool blames_another_rank(std::string_view exception);

struct Traceback {
  std::vector<std::string> lines;  ///< from "Traceback (most…" to the end of the exception's text
  std::size_t text_lines = 0;      ///< how many of them, at the end, are the exception's text
  /// Exceptions that this one was raised from, or while handling them; the first one first.
  std::vector<std::string> causes;

  /// The exception's first line, e.g. "ValueError: boom"; empty if the block was cut off.
  [[nodiscard]] std::string_view exception() const;
};

/// Knows the forms that real jobs print: plain; after a prefix that each line repeats, as torch
/// ("[rank3]: "), pip (indented) and exception groups ("  | ") write it; and after a logger's
/// prefix on the first line alone. Lines that follow the exception and are indented, or have
/// torch's prefix, belong to its text. A traceback that is quoted in the text of an error which
/// blames another rank is that rank's, and does not replace it; nor does a launcher's own, which
/// only says that another process failed (torchrun's ChildFailedError,
/// subprocess.CalledProcessError).
class TracebackCollector {
 public:
  /// Keeps memory bounded for a recursion thousands of frames deep: the first and the last half of
  /// this many lines stay.
  static constexpr std::size_t kLongest = 120;
  static constexpr std::size_t kMostCauses = 8;

  /// One whole line, without its end mark and rank tag.
  void add(std::string_view line);

  /// The last complete block, or the one that is being read when none is complete.
  [[nodiscard]] const Traceback& last() const { return last_.lines.empty() ? open_ : last_; }
  [[nodiscard]] bool empty() const { return last().lines.empty(); }

 private:
  enum class Place {
    kOutside,
    kFrames,  ///< between the header and the exception
    kText,    ///< in the exception's text, or right behind it
  };

  void begin(std::string_view prefix);
  void keep(std::string_view line);
  void complete();
  void append_text(std::string_view line);
  void continue_text(std::string_view line, bool has_prefix);

  Place place_ = Place::kOutside;
  bool chained_ = false;  ///< the block before led to the one that comes
  bool quoted_ = false;   ///< the open block is another rank's
  std::string prefix_;    ///< what each line of the open block may repeat
  Traceback open_;
  Traceback last_;
};

}  // namespace entrypoint::supervise
