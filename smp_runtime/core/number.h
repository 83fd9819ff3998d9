// SPDX-License-Identifier: Apache-2.0
// Numbers in texts, by std::from_chars: no blanks, no leading "+", no locale.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace smp {

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

}  // namespace smp
