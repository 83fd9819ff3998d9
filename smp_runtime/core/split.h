// SPDX-License-Identifier: Apache-2.0
// Parts of texts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace smp {

/// Parts before, between and behind the separators; one empty part for an empty text.
inline std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

/// Parts that end in `terminator`, without it, and a rest that has none; nothing for an empty text.
inline std::vector<std::string> split_terminated(std::string_view text, char terminator) {
  std::vector<std::string> parts = split(text, terminator);
  if (parts.back().empty()) parts.pop_back();
  return parts;
}

/// Without the white space at both ends. A view into `text`.
inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kWhiteSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kWhiteSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kWhiteSpace) - begin + 1);
}

}  // namespace smp
