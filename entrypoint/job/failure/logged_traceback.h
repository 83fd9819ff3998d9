// SPDX-License-Identifier: Apache-2.0
// A traceback within one line of a structured log: JSON, logfmt, a quoted text of Python.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace entrypoint {

/// "Traceback (most recent call last)", as every printer of tracebacks writes it.
inline constexpr std::string_view kTracebackHeader = "Traceback (most recent call last)";

/// The lines of the traceback that `line` holds as a quoted text, line ends written as `\n`; else
/// of an exception that it names by type and text alone (`"exc_type": "KeyError", "exc_value": …`),
/// as a header and that exception. Empty: it holds neither. Pure.
std::vector<std::string> logged_traceback(std::string_view line);

}  // namespace entrypoint
