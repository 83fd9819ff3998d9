// SPDX-License-Identifier: Apache-2.0
// Kinds of lines in a program's output, for the search of the cause of its end.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace entrypoint {

bool holds_one_of(std::string_view text, std::span<const std::string_view> words);

enum class LineKind {
  kWords,   ///< what a program said, of no special kind
  kError,   ///< says that something failed, in a form that compilers, loggers or shells use
  kReport,  ///< says only that another program failed, whose own words come before it
  kNoise,   ///< of a progress bar, a tool at its end, a logger below ERROR
};

/// Judges by the text alone, which has no rank tag. Pure.
LineKind kind_of_line(std::string_view text);

/// True if an exception, with its text, is a report: torchrun's ChildFailedError,
/// subprocess.CalledProcessError, a build's "command … failed with exit code 1". Pure.
bool reports_another_process(std::string_view exception);

/// The end of the process that the last line of kind kReport, or such an exception, tells of:
/// "killed by SIGKILL (signal 9)", "exit code 7"; empty where the text does not say. Pure.
std::string end_in_report(std::string_view text);

/// "SIGKILL (signal 9)". Pure.
std::string signal_words(int signal);

}  // namespace entrypoint
