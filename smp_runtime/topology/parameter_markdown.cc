// SPDX-License-Identifier: Apache-2.0
// The parameter table as documentation.
#include <string>

#include <fmt/format.h>

#include "smp_runtime/topology/parameter_table.h"

namespace smp::topology {
namespace {

std::string name_of(const ConfigParameter& parameter) {
  if (parameter.alias.empty()) return fmt::format("`{}`", parameter.name);
  return fmt::format("`{}` or `{}`", parameter.name, parameter.alias);
}

std::string default_of(const ConfigParameter& parameter) {
  if (!parameter.derived_default.empty()) return std::string(parameter.derived_default);
  const Value value = read_field(ParallelConfig{}, parameter);
  if (std::holds_alternative<std::monostate>(value)) return "none";
  return fmt::format("`{}`", to_text(value));
}

std::string limits_of(const ConfigParameter& parameter) {
  if (parameter.no_effect.empty()) return {};
  return fmt::format("; accepted without effect: {}", parameter.no_effect);
}

}  // namespace

std::string parameters_as_markdown() {
  std::string text = "| key | default | values | meaning |\n|---|---|---|---|\n";
  for (const ConfigParameter& parameter : parameter_table()) {
    text += fmt::format("| {} | {} | {} | {}{} |\n", name_of(parameter), default_of(parameter),
                        expectation(parameter), parameter.help, limits_of(parameter));
  }
  return text;
}

}  // namespace smp::topology
