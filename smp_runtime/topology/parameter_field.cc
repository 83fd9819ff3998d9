// SPDX-License-Identifier: Apache-2.0
// Values in and out of the fields that the table names: conversion and range.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <type_traits>

#include <fmt/ranges.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/text.h"
#include "smp_runtime/topology/parameter_table.h"

namespace smp::topology {
namespace {

std::optional<double> number_in(const Value& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
  if (const auto* real = std::get_if<double>(&value)) return *real;
  if (const auto* text = std::get_if<std::string>(&value)) return parse_number<double>(*text);
  return std::nullopt;  // a boolean is no number here, although Python thinks so
}

std::optional<bool> boolean_in(const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  if (const auto* text = std::get_if<std::string>(&value)) {
    std::string lower = *text;
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (lower == "true" || lower == "1") return true;
    if (lower == "false" || lower == "0") return false;
    return std::nullopt;
  }
  const auto number = number_in(value);
  if (number == 0.0 || number == 1.0) return number == 1.0;
  return std::nullopt;
}

std::optional<double> number_in_range(const Value& value, const ConfigParameter& parameter,
                                      bool integral) {
  const auto number = number_in(value);
  // Written so that NaN fails.
  const bool fits = number && *number >= parameter.least && *number <= parameter.most;
  if (!fits || (integral && std::nearbyint(*number) != *number)) return std::nullopt;
  return number;
}

std::optional<std::string> choice_in(const Value& value, const ConfigParameter& parameter) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return std::nullopt;
  const auto& choices = parameter.choices;
  const bool known = std::find(choices.begin(), choices.end(), *text) != choices.end();
  if (choices.empty() ? text->empty() : !known) return std::nullopt;
  return *text;
}

template <typename Held>
std::optional<Held> convert(const Value& value, const ConfigParameter& parameter) {
  if constexpr (std::is_same_v<Held, bool>) {
    return boolean_in(value);
  } else if constexpr (std::is_same_v<Held, std::string>) {
    return choice_in(value, parameter);
  } else {
    const auto number = number_in_range(value, parameter, std::is_integral_v<Held>);
    if (!number) return std::nullopt;
    return static_cast<Held>(*number);
  }
}

template <typename Held>
struct Unwrapped {
  using Type = Held;
};
template <typename Held>
struct Unwrapped<std::optional<Held>> {
  using Type = Held;
};

template <typename Member>
using HeldBy = typename Unwrapped<
    std::remove_cvref_t<decltype(std::declval<ParallelConfig>().*std::declval<Member>())>>::Type;

}  // namespace

std::string expectation(const ConfigParameter& parameter) {
  return std::visit(
      [&](auto member) -> std::string {
        using Held = HeldBy<decltype(member)>;
        if constexpr (std::is_same_v<Held, bool>) {
          return "true or false";
        } else if constexpr (std::is_same_v<Held, std::string>) {
          if (parameter.choices.empty()) return "a text that is not empty";
          return fmt::format("one of {}", fmt::join(parameter.choices, ", "));
        } else {
          return fmt::format("{} from {} to {}",
                             std::is_integral_v<Held> ? "an integer" : "a number", parameter.least,
                             parameter.most);
        }
      },
      parameter.field);
}

Value read_field(const ParallelConfig& config, const ConfigParameter& parameter) {
  return std::visit(
      [&](auto member) -> Value {
        const auto& held = config.*member;
        if constexpr (requires { held.has_value(); }) {
          return held ? Value(*held) : Value();
        } else {
          return held;
        }
      },
      parameter.field);
}

void write_field(ParallelConfig& config, const ConfigParameter& parameter, const Setting& setting,
                 std::string_view where) {
  if (std::holds_alternative<std::monostate>(setting.value)) return;
  std::visit(
      [&](auto member) {
        auto converted = convert<HeldBy<decltype(member)>>(setting.value, parameter);
        if (!converted) {
          throw ConfigError("{}: {} is {}; expected {} ({})", where, setting.name,
                            to_text(setting.value), expectation(parameter), parameter.help);
        }
        config.*member = *std::move(converted);
      },
      parameter.field);
}

}  // namespace smp::topology
