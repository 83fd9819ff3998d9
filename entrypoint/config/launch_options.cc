// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/config/launch_options.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <limits>
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

/// The choice whose word the variable has; `words` stand in the order of the enumeration.
template <typename Choice>
void choose(const Setting& setting, Choice& value, std::initializer_list<std::string_view> words) {
  const std::string said = setting.set.choice(setting.name, words);
  value = static_cast<Choice>(std::ranges::find(words, said) - words.begin());
}

void parse(const Setting& setting, std::string& value) { value = setting.set.text(setting.name); }

void parse(const Setting& setting, bool& value) { value = setting.set.flag(setting.name); }

void parse(const Setting& setting, int& value) {
  constexpr int kLastPort = 65535;
  value = static_cast<int>(setting.set.whole(setting.name, 0, kLastPort,
                                             fmt::format("a port number, 0 to {}", kLastPort)));
}

void parse(const Setting& setting, std::int64_t& value) {
  value = setting.set.whole(setting.name, 0, std::numeric_limits<std::int64_t>::max(),
                            "a whole number, 0 or more");
}

void parse(const Setting& setting, std::chrono::seconds& value) {
  constexpr long kMostSeconds = 10L * 24 * 3600;
  value = std::chrono::seconds(setting.set.whole(
      setting.name, 0, kMostSeconds, fmt::format("whole seconds, 0 to {}", kMostSeconds)));
}

void parse(const Setting& setting, RunnerWish& value) {
  choose(setting, value, {"auto", "mpi", "smddp", "torchrun", "process"});
}

void parse(const Setting& setting, ArgumentStyle& value) {
  choose(setting, value, {"python", "json", "overrides"});
}

void parse(const Setting& setting, ArgumentOrder& value) {
  choose(setting, value, {"sorted", "file"});
}

void parse(const Setting& setting, CodePolicy& value) {
  choose(setting, value, {"keep", "replace"});
}

void parse(const Setting& setting, EfaSwitch& value) {
  choose(setting, value, {"auto", "on", "off"});
}

void parse(const Setting& setting, CheckPolicy& value) {
  choose(setting, value, {"0", "1", "strict"});
}

void parse(const Setting& setting, AuthPolicy& value) {
  choose(setting, value, {"allow", "require"});
}

void parse(const Setting& setting, ExitPolicy& value) {
  choose(setting, value, {"one", "propagate"});
}

}  // namespace

std::span<const smp::VariableRow> option_table() { return kRows; }

LaunchOptions read_options(const smp::Variables& environment) {
  const smp::VariableSet set(kRows, environment);
  LaunchOptions options;
#define OPTION_READ(type, field, variable, standard, meaning) parse({set, variable}, options.field);
  ENTRYPOINT_OPTIONS(OPTION_READ)
#undef OPTION_READ
  return options;
}

std::vector<std::string> describe_unknown_options(const smp::Variables& environment) {
  const smp::VariableSet set(kRows, environment);
  std::vector<std::string> sentences = set.unknown("SM_LAUNCH_");
  // The prefix is the library's; only names like the launcher's one are looked for.
  for (std::string& sentence : set.unknown("SMP_EXTRA_")) sentences.push_back(std::move(sentence));
  return sentences;
}

}  // namespace entrypoint
