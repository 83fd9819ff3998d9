// SPDX-License-Identifier: Apache-2.0
// The last Python traceback of one process, picked out of its output line by line, or out of one
// line of a structured log: JSON, logfmt, a quoted text of Python.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace entrypoint {

/// True if a line begins with the name of a type and a colon, or is nothing but one: "ValueError:
/// boom", "torch.OutOfMemoryError: …", "KeyError". A logger's level is none.
bool names_exception(std::string_view line);

/// True if an exception says only that another rank failed or was lost, so that the cause is to be
/// looked for there: SMPConnectionError, "rank 1 failed in …", gloo's and NCCL's lost connections.
bool blames_another_rank(std::string_view exception);

struct Traceback {
  std::vector<std::string> lines;  ///< from "Traceback (most…" to the end of the exception's text
  std::size_t text_lines = 0;      ///< how many of them, at the end, are the exception's text
  /// Exceptions that this one was raised from, or while handling them; the first one first.
  std::vector<std::string> causes;
  /// It has the form that Python prints when nobody caught it: no logger spoke before it, and its
  /// outermost frame is a module's. A script can print such a block by itself.
  bool looks_uncaught = false;

  /// The exception's first line, e.g. "ValueError: boom"; empty if the block was cut off.
  [[nodiscard]] std::string_view exception() const;
};

/// Knows the forms that real jobs print: plain; after a prefix that each line repeats, but for its
/// digits, as torch ("[rank3]: "), pip (indented), exception groups ("  | ") and clocks write it;
/// after a logger's prefix on the first line alone; in a box, as rich draws it; with loguru's
/// marks; and as one line of a structured log. Lines that follow the exception and are indented, or
/// have torch's prefix, belong to its text. Words of others between its lines are left out. A
/// traceback that is quoted in the text of an error which blames another rank is that rank's, and
/// does not replace it; nor does a report (reports_another_process()).
class TracebackCollector {
 public:
  /// Keeps memory bounded for a recursion thousands of frames deep: the first and the last half of
  /// this many lines stay.
  static constexpr std::size_t kLongest = 120;
  static constexpr std::size_t kMostCauses = 8;

  /// One whole line, without its end mark and rank tag. Returns whether it is of a traceback.
  bool add(std::string_view line);

  /// The last complete block, or the one that is being read when none is complete.
  [[nodiscard]] const Traceback& last() const { return last_.lines.empty() ? open_ : last_; }
  [[nodiscard]] bool empty() const { return last().lines.empty(); }
  /// A header came, and the exception did not yet.
  [[nodiscard]] bool is_reading() const { return place_ == Place::kFrames; }
  /// Number of blocks that were complete, reports apart.
  [[nodiscard]] long completed() const { return completed_; }

  /// The last block that only reports another process; may be empty.
  [[nodiscard]] const Traceback& report() const { return report_; }

 private:
  enum class Place {
    kOutside,
    kFrames,  ///< between the header and the exception
    kText,    ///< in the exception's text, or right behind it
  };

  bool add_logged(std::string_view line);
  void begin(std::string_view prefix);
  bool add_frame(std::string_view line);
  void keep(std::string_view line);
  void complete();
  void append_text(std::string_view line);
  bool continue_text(std::string_view line, bool has_prefix);

  Place place_ = Place::kOutside;
  bool chained_ = false;      ///< the block before led to the one that comes
  bool quoted_ = false;       ///< the open block is another rank's
  bool boxed_ = false;        ///< each line of the open block has a frame around it
  bool logged_ = false;       ///< a logger spoke before the open block
  bool after_error_ = false;  ///< the last line outside of blocks was a logger's error
  int strangers_ = 0;         ///< lines of others since the open block began
  std::string prefix_;        ///< what each line of the open block may repeat
  Traceback open_;
  Traceback last_;
  Traceback report_;
  Traceback* closed_ = &last_;  ///< whose text goes on
  long completed_ = 0;
};

/// "Traceback (most recent call last)", as every printer of tracebacks writes it.
inline constexpr std::string_view kTracebackHeader = "Traceback (most recent call last)";

/// The lines of the traceback that `line` holds as a quoted text, line ends written as `\n`; else
/// of an exception that it names by type and text alone (`"exc_type": "KeyError", "exc_value": …`),
/// as a header and that exception. Empty: it holds neither. Pure.
std::vector<std::string> logged_traceback(std::string_view line);

}  // namespace entrypoint
