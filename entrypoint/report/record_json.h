// SPDX-License-Identifier: Apache-2.0
// Lines and numbers of records, which other hosts and programs may have written.
#pragma once

#include <cstdint>
#include <exception>
#include <string_view>

#include <nlohmann/json.hpp>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/text.h"

namespace entrypoint::report {

/// As far as a double counts by ones. What a report sums of them, StepLine::add() bounds.
inline constexpr std::int64_t kLargestNumber = std::int64_t{1} << 53;

[[nodiscard]] inline bool is_record_number(std::int64_t number) {
  return number >= -kLargestNumber && number <= kLargestNumber;
}

/// Throws ConfigError for what is no whole number, or beyond kLargestNumber or `Number`.
template <typename Number = std::int64_t>
[[nodiscard]] Number record_number(const nlohmann::json& value) {
  const auto number = smp::whole_number<Number>(value);
  if (number && is_record_number(*number)) return *number;
  throw smp::ConfigError("{} is not a whole number of a record", smp::json_line(value));
}

/// Null for what is no JSON.
[[nodiscard]] inline nlohmann::json record_line(std::string_view line) {
  try {
    return smp::parse_json<nlohmann::json>(line, "a record");
  } catch (const std::exception&) {
    return nullptr;
  }
}

}  // namespace entrypoint::report
