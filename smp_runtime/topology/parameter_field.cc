// SPDX-License-Identifier: Apache-2.0
// Values in and out of the fields that the tables name: conversion and range.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <type_traits>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

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

template <typename Config>
std::optional<double> number_in_range(const Value& value, const Parameter<Config>& parameter,
                                      bool integral) {
  const auto number = number_in(value);
  // Written so that NaN fails.
  const bool fits = number && *number >= parameter.least && *number <= parameter.most;
  if (!fits || (integral && std::nearbyint(*number) != *number)) return std::nullopt;
  return number;
}

template <typename Config>
std::optional<std::string> choice_in(const Value& value, const Parameter<Config>& parameter) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return std::nullopt;
  const auto& choices = parameter.choices;
  const bool known = std::find(choices.begin(), choices.end(), *text) != choices.end();
  if (choices.empty() ? text->empty() : !known) return std::nullopt;
  return *text;
}

template <typename Held, typename Config>
std::optional<Held> convert(const Value& value, const Parameter<Config>& parameter) {
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

/// The type of the values that a member has, or may have.
template <typename Member>
struct HeldBy;
template <typename Config, typename Held>
struct HeldBy<Held Config::*> {
  using Type = Held;
};
template <typename Config, typename Held>
struct HeldBy<std::optional<Held> Config::*> {
  using Type = Held;
};

}  // namespace

template <typename Config>
std::string Parameter<Config>::expectation() const {
  return std::visit(
      [&](auto member) -> std::string {
        using Held = typename HeldBy<decltype(member)>::Type;
        if constexpr (std::is_same_v<Held, bool>) {
          return "true or false";
        } else if constexpr (std::is_same_v<Held, std::string>) {
          if (choices.empty()) return "a text that is not empty";
          return fmt::format("one of {}", fmt::join(choices, ", "));
        } else {
          return fmt::format("{} from {} to {}",
                             std::is_integral_v<Held> ? "an integer" : "a number", least, most);
        }
      },
      field);
}

template <typename Config>
Value Parameter<Config>::read(const Config& config) const {
  return std::visit(
      [&](auto member) -> Value {
        const auto& held = config.*member;
        if constexpr (requires { held.has_value(); }) {
          return held ? Value(*held) : Value();
        } else {
          return held;
        }
      },
      field);
}

template <typename Config>
void Parameter<Config>::write(Config& config, const Setting& setting,
                              std::string_view where) const {
  if (std::holds_alternative<std::monostate>(setting.value)) return;
  std::visit(
      [&](auto member) {
        auto converted = convert<typename HeldBy<decltype(member)>::Type>(setting.value, *this);
        if (!converted) {
          throw ConfigError("{}: {} is {}; expected {} ({})", where, setting.name,
                            to_text(setting.value), expectation(), help);
        }
        config.*member = *std::move(converted);
      },
      field);
}

template <typename Config>
std::string Parameter<Config>::all_as_json(const Config& config) {
  nlohmann::ordered_json values = nlohmann::ordered_json::object();
  for (const Parameter& parameter : table()) {
    const auto value = nlohmann::ordered_json::parse(to_text(parameter.read(config)));
    values[std::string(parameter.name)] = value;
    if (!parameter.alias.empty()) values[std::string(parameter.alias)] = value;
  }
  return values.dump();
}

template std::string ConfigParameter::expectation() const;
template std::string V2Parameter::expectation() const;
template Value ConfigParameter::read(const ParallelConfig&) const;
template Value V2Parameter::read(const V2Config&) const;
template void ConfigParameter::write(ParallelConfig&, const Setting&, std::string_view) const;
template void V2Parameter::write(V2Config&, const Setting&, std::string_view) const;
template std::string ConfigParameter::all_as_json(const ParallelConfig&);
template std::string V2Parameter::all_as_json(const V2Config&);

}  // namespace smp::topology
