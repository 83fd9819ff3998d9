// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/config/launch_options.h"

#include <array>
#include <charconv>
#include <initializer_list>
#include <utility>

#include <fmt/format.h>

#include "opt_ml_layout/hyperparameters.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/near_names.h"

namespace entrypoint {
namespace {

constexpr std::array kRows = {
#define OPTION_ROW(type, field, variable, standard, meaning) OptionRow{variable, standard, meaning},
    ENTRYPOINT_OPTIONS(OPTION_ROW)
#undef OPTION_ROW
};

struct Setting {
  std::string_view variable;
  std::string text;

  [[noreturn]] void fail(std::string_view expected) const {
    throw smp::ConfigError("environment variable {}=\"{}\": expected {}; correct or unset it",
                           variable, text, expected);
  }
};

template <typename Choice>
Choice choose(const Setting& setting,
              std::initializer_list<std::pair<std::string_view, Choice>> choices) {
  std::string expected;
  for (const auto& [word, choice] : choices) {
    if (setting.text == word) return choice;
    expected += fmt::format("{}{}", expected.empty() ? "" : " or ", word);
  }
  setting.fail(expected);
}

void parse(const Setting& setting, std::string& value) { value = setting.text; }

void parse(const Setting& setting, bool& value) {
  const auto on = opt_ml::parse_switch(setting.text);
  if (!on) setting.fail("1, on, true or yes, or 0, off, false or no");
  value = *on;
}

void parse(const Setting& setting, int& value) {
  constexpr int kLastPort = 65535;
  const char* const end = setting.text.data() + setting.text.size();
  const auto [rest, error] = std::from_chars(setting.text.data(), end, value);
  if (error != std::errc() || rest != end || value < 0 || value > kLastPort) {
    setting.fail(fmt::format("a port number, 0 to {}", kLastPort));
  }
}

void parse(const Setting& setting, std::chrono::seconds& value) {
  constexpr long kMostSeconds = 10L * 24 * 3600;
  long seconds = 0;
  const char* const end = setting.text.data() + setting.text.size();
  const auto [rest, error] = std::from_chars(setting.text.data(), end, seconds);
  if (error != std::errc() || rest != end || seconds < 0 || seconds > kMostSeconds) {
    setting.fail(fmt::format("whole seconds, 0 to {}", kMostSeconds));
  }
  value = std::chrono::seconds(seconds);
}

void parse(const Setting& setting, ArgumentStyle& value) {
  value = choose<ArgumentStyle>(
      setting, {{"python", ArgumentStyle::kPython}, {"json", ArgumentStyle::kJson}});
}

void parse(const Setting& setting, ArgumentOrder& value) {
  value = choose<ArgumentOrder>(
      setting, {{"sorted", ArgumentOrder::kSorted}, {"file", ArgumentOrder::kFile}});
}

void parse(const Setting& setting, CodePolicy& value) {
  value =
      choose<CodePolicy>(setting, {{"keep", CodePolicy::kKeep}, {"replace", CodePolicy::kReplace}});
}

void parse(const Setting& setting, EfaPolicy& value) {
  value = choose<EfaPolicy>(
      setting, {{"auto", EfaPolicy::kAuto}, {"on", EfaPolicy::kOn}, {"off", EfaPolicy::kOff}});
}

void parse(const Setting& setting, ExitPolicy& value) {
  value = choose<ExitPolicy>(setting,
                             {{"one", ExitPolicy::kOne}, {"propagate", ExitPolicy::kPropagate}});
}

}  // namespace

std::span<const OptionRow> option_table() { return kRows; }

LaunchOptions read_options(const EnvironmentMap& environment) {
  LaunchOptions options;
#define OPTION_READ(type, field, variable, standard, meaning) \
  parse({variable, value_or(environment, variable, standard)}, options.field);
  ENTRYPOINT_OPTIONS(OPTION_READ)
#undef OPTION_READ
  return options;
}

std::vector<std::string> describe_unknown_options(const EnvironmentMap& environment) {
  constexpr std::string_view kPrefix = "SM_LAUNCH_";
  std::vector<std::string_view> given;
  for (const auto& [name, value] : environment) given.push_back(name);
  std::vector<std::string_view> known;
  for (const OptionRow& row : kRows) {
    if (row.variable.starts_with(kPrefix)) known.push_back(row.variable);
  }
  return smp::describe_unknown_variables(given, kPrefix, known);
}

}  // namespace entrypoint
