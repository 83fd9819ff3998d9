// SPDX-License-Identifier: Apache-2.0
// Texts: their parts, the numbers that they hold, names that are near to them, and JSON as one.
// Numbers are read by std::from_chars: no blanks, no leading "+", no locale.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "smp_runtime/core/error.h"

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

/// The number that the whole of `text` is. Nothing for other texts, and for numbers that `Number`
/// cannot hold.
template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest != end) return std::nullopt;
  return number;
}

/// The same of what `text` begins with: 12 of "12.4".
template <typename Number>
std::optional<Number> leading_number(std::string_view text) {
  Number number{};
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

/// The whole number that `value`, of one of the json types of nlohmann, is. Nothing for a value of
/// another type, which a fraction is, and for numbers that `Number` cannot hold: its get() gives
/// some number for both.
template <typename Number, typename Json>
std::optional<Number> whole_number(const Json& value) {
  const auto fitting = [](auto number) {
    return std::in_range<Number>(number) ? std::optional(static_cast<Number>(number))
                                         : std::nullopt;
  };
  if (value.is_number_unsigned()) return fitting(value.template get<std::uint64_t>());
  if (value.is_number_integer()) return fitting(value.template get<std::int64_t>());
  return std::nullopt;
}

/// Deepest nesting of JSON that may come from anywhere: whatever looks at it goes down as deep.
inline constexpr int kDeepestJson = 100;

/// `text`, of `where`, as one of the json types of nlohmann. Throws its exceptions, and ConfigError
/// for one that nests deeper than kDeepestJson.
template <typename Json>
Json parse_json(std::string_view text, std::string_view where) {
  return Json::parse(text, [where](int depth, typename Json::parse_event_t, Json&) {
    if (depth > kDeepestJson) {
      throw ConfigError(
          "{}: its JSON nests deeper than {}, which nothing that is written here does", where,
          kDeepestJson);
    }
    return true;
  });
}

/// `value`, of one of the json types of nlohmann, on one line. What is no UTF-8, as a path may be,
/// is replaced. `in_ascii`: other characters are escaped.
template <typename Json>
std::string json_line(const Json& value, bool in_ascii = false) {
  return value.dump(-1, ' ', in_ascii, Json::error_handler_t::replace);
}

/// Names of `known` that are close to `name`, nearest first, at most three: for "did you mean". A
/// name is close if it is a few edits away, or longer with `name` as a part. The result views into
/// `known`. O(known x length^2) time.
std::vector<std::string_view> near_names(std::string_view name,
                                         std::span<const std::string_view> known);

}  // namespace smp
