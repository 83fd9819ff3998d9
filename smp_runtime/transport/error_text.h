// SPDX-License-Identifier: Apache-2.0
// Texts of Torch's errors, without the C++ frames that it adds to them.
#pragma once

#include <algorithm>
#include <exception>
#include <string>
#include <string_view>

namespace smp::transport {

/// `text` without lines that tell of C++ frames: "Exception raised from …" and "frame #0: …".
inline std::string without_frames(std::string_view text) {
  std::string kept;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.empty() || line.starts_with("Exception raised from ") || line.starts_with("frame #")) {
      continue;
    }
    if (!kept.empty()) kept += '\n';
    kept += line;
  }
  return kept;
}

/// The first of the lines of `text`.
inline std::string_view first_line(std::string_view text) {
  return text.substr(0, text.find('\n'));
}

/// Text of `error`, without the frames.
inline std::string error_text(const std::exception& error) { return without_frames(error.what()); }

/// The same of any error; never empty.
inline std::string error_text(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    const std::string text = error_text(exception);
    return text.empty() ? "an error without a text" : text;
  } catch (...) {
    return "an error of another kind";
  }
}

}  // namespace smp::transport
