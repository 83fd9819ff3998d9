// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/config/launch_options.h"

#include <array>
#include <utility>

#include <fmt/format.h>

namespace entrypoint {
namespace {

constexpr std::array kRows = {
#define OPTION_ROW(type, field, variable, standard, meaning) \
  smp::VariableRow{variable, standard, meaning},
    ENTRYPOINT_OPTIONS(OPTION_ROW)
#undef OPTION_ROW
};

/// A variable of the set.
struct Setting {
  const smp::VariableSet& set;
  std::string_view name;
};

template <typename Choice>
Choice choose(const Setting& setting, std::string_view first, Choice if_first,
              std::string_view second, Choice if_second) {
  return setting.set.choice(setting.name, {first, second}) == first ? if_first : if_second;
}

void parse(const Setting& setting, std::string& value) { value = setting.set.text(setting.name); }

void parse(const Setting& setting, bool& value) { value = setting.set.flag(setting.name); }

void parse(const Setting& setting, int& value) {
  constexpr int kLastPort = 65535;
  value = static_cast<int>(setting.set.whole(setting.name, 0, kLastPort,
                                             fmt::format("a port number, 0 to {}", kLastPort)));
}

void parse(const Setting& setting, std::chrono::seconds& value) {
  constexpr long kMostSeconds = 10L * 24 * 3600;
  value = std::chrono::seconds(setting.set.whole(
      setting.name, 0, kMostSeconds, fmt::format("whole seconds, 0 to {}", kMostSeconds)));
}

void parse(const Setting& setting, RunnerWish& value) {
  constexpr std::array kWords = {
      std::pair{"auto", RunnerWish::kAuto}, std::pair{"mpi", RunnerWish::kMpi},
      std::pair{"smddp", RunnerWish::kSmddp}, std::pair{"torchrun", RunnerWish::kTorchrun},
      std::pair{"process", RunnerWish::kProcess}};
  const std::string word =
      setting.set.choice(setting.name, {"auto", "mpi", "smddp", "torchrun", "process"});
  for (const auto& [name, wish] : kWords) {
    if (word == name) value = wish;
  }
}

void parse(const Setting& setting, ArgumentStyle& value) {
  const std::string word = setting.set.choice(setting.name, {"python", "json", "overrides"});
  value = word == "json"        ? ArgumentStyle::kJson
          : word == "overrides" ? ArgumentStyle::kOverrides
                                : ArgumentStyle::kPython;
}

void parse(const Setting& setting, ArgumentOrder& value) {
  value = choose(setting, "sorted", ArgumentOrder::kSorted, "file", ArgumentOrder::kFile);
}

void parse(const Setting& setting, CodePolicy& value) {
  value = choose(setting, "keep", CodePolicy::kKeep, "replace", CodePolicy::kReplace);
}

void parse(const Setting& setting, EfaSwitch& value) {
  const std::string word = setting.set.choice(setting.name, {"auto", "on", "off"});
  value = word == "on" ? EfaSwitch::kOn : word == "off" ? EfaSwitch::kOff : EfaSwitch::kAuto;
}

void parse(const Setting& setting, CheckPolicy& value) {
  const std::string word = setting.set.choice(setting.name, {"0", "1", "strict"});
  value = word == "strict" ? CheckPolicy::kStrict
          : word == "1"    ? CheckPolicy::kReport
                           : CheckPolicy::kOff;
}

void parse(const Setting& setting, ExitPolicy& value) {
  value = choose(setting, "one", ExitPolicy::kOne, "propagate", ExitPolicy::kPropagate);
}

}  // namespace

std::span<const smp::VariableRow> option_table() { return kRows; }

LaunchOptions read_options(const EnvironmentMap& environment) {
  const smp::VariableSet set(kRows, environment);
  LaunchOptions options;
#define OPTION_READ(type, field, variable, standard, meaning) parse({set, variable}, options.field);
  ENTRYPOINT_OPTIONS(OPTION_READ)
#undef OPTION_READ
  return options;
}

std::vector<std::string> describe_unknown_options(const EnvironmentMap& environment) {
  const smp::VariableSet set(kRows, environment);
  std::vector<std::string> sentences = set.unknown("SM_LAUNCH_");
  // The prefix is the library's; only names like the launcher's one are looked for.
  for (std::string& sentence : set.unknown("SMP_EXTRA_")) sentences.push_back(std::move(sentence));
  return sentences;
}

}  // namespace entrypoint
