// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/variables.h"

#include <algorithm>
#include <cctype>

#include <unistd.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/text.h"

namespace smp {
namespace {

constexpr double kMostSeconds = 1e9;

void put(Variables& variables, std::string_view entry) {
  const size_t mark = entry.find('=');
  if (mark != std::string_view::npos) {
    variables.emplace(entry.substr(0, mark), entry.substr(mark + 1));
  }
}

}  // namespace

Variables read_variables() {
  Variables variables;
  for (char** entry = environ; *entry != nullptr; ++entry) put(variables, *entry);
  return variables;
}

Variables variables_of(std::span<const std::string> entries) {
  Variables variables;
  for (const std::string& entry : entries) put(variables, entry);
  return variables;
}

std::string value_or(const Variables& variables, std::string_view name,
                     std::string_view otherwise) {
  const auto entry = variables.find(name);
  const bool there = entry != variables.end() && !entry->second.empty();
  return there ? entry->second : std::string(otherwise);
}

std::optional<bool> parse_switch(std::string_view text) {
  std::string word(text);
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const std::string_view on : {"1", "on", "true", "yes"}) {
    if (word == on) return true;
  }
  for (const std::string_view off : {"0", "off", "false", "no"}) {
    if (word == off) return false;
  }
  return std::nullopt;
}

std::string VariableSet::text(std::string_view name) const {
  const auto row = std::ranges::find(table_, name, &VariableRow::name);
  return value_or(given_, name, row == table_.end() ? "" : row->standard);
}

bool VariableSet::flag(std::string_view name) const {
  const auto on = parse_switch(text(name));
  if (!on) refuse(name, "1, on, true or yes, or 0, off, false or no");
  return *on;
}

double VariableSet::seconds(std::string_view name) const {
  const auto value = parse_number<double>(text(name));
  if (!value || !(*value > 0) || *value > kMostSeconds) {
    refuse(name, fmt::format("a number of seconds above 0, at most {:.0f}", kMostSeconds));
  }
  return *value;
}

log::Level VariableSet::level(std::string_view name) const {
  const auto level = log::parse_level(text(name));
  if (!level) refuse(name, "a level of Python's logging, such as 10 or DEBUG");
  return *level;
}

std::string VariableSet::choice(std::string_view name,
                                std::initializer_list<std::string_view> words) const {
  std::string given = text(name);
  if (std::ranges::find(words, given) != words.end()) return given;
  std::string expected;
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (word != words.begin()) expected += word + 1 == words.end() ? " or " : ", ";
    expected += *word;
  }
  refuse(name, expected);
}

std::int64_t VariableSet::whole(std::string_view name, std::int64_t least, std::int64_t most,
                                std::string_view expected) const {
  const auto value = parse_number<std::int64_t>(text(name));
  if (!value || *value < least || *value > most) refuse(name, expected);
  return *value;
}

void VariableSet::refuse(std::string_view name, std::string_view expected) const {
  throw ConfigError("variable {} is \"{}\"; expected {}; correct or unset it", name, text(name),
                    expected);
}

std::vector<std::string> VariableSet::unknown(std::string_view prefix,
                                              std::span<const std::string_view> elsewhere,
                                              std::span<const std::string_view> unnamed) const {
  std::vector<std::string_view> known(elsewhere.begin(), elsewhere.end());
  for (const VariableRow& row : table_) {
    if (row.name.starts_with(prefix)) known.push_back(row.name);
  }
  // Compared without the prefix: it would make all of them look alike.
  std::vector<std::string_view> endings;
  for (const std::string_view name : known) endings.push_back(name.substr(prefix.size()));
  std::vector<std::string> sentences;
  for (const auto& [name, value] : given_) {
    if (!name.starts_with(prefix) || std::ranges::find(known, name) != known.end()) continue;
    if (std::ranges::find(unnamed, name) != unnamed.end()) continue;
    const auto near = near_names(std::string_view(name).substr(prefix.size()), endings);
    sentences.push_back(
        near.empty()
            ? fmt::format("{} is not known; docs/reference/environment.md lists the variables that "
                          "are",
                          name)
            : fmt::format("{} is not known; did you mean {}{}?", name, prefix, near.front()));
  }
  return sentences;
}

}  // namespace smp
