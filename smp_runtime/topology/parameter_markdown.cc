// SPDX-License-Identifier: Apache-2.0
// The parameter tables as documentation.
#include <string>

#include <fmt/format.h>

#include "smp_runtime/topology/parameter_table.h"

namespace smp::topology {
namespace {

template <typename Config>
std::string name_of(const Parameter<Config>& parameter) {
  if (parameter.alias.empty()) return fmt::format("`{}`", parameter.name);
  return fmt::format("`{}` or `{}`", parameter.name, parameter.alias);
}

template <typename Config>
std::string default_of(const Parameter<Config>& parameter) {
  if (!parameter.derived_default.empty()) return std::string(parameter.derived_default);
  const Value value = parameter.read(Config{});
  if (std::holds_alternative<std::monostate>(value)) return "none";
  return fmt::format("`{}`", to_text(value));
}

template <typename Config>
std::string limits_of(const Parameter<Config>& parameter) {
  if (parameter.no_effect.empty()) return {};
  return fmt::format("; accepted without effect: {}", parameter.no_effect);
}

}  // namespace

template <typename Config>
std::string Parameter<Config>::table_as_markdown() {
  std::string text = "| key | default | values | meaning |\n|---|---|---|---|\n";
  for (const Parameter& parameter : table()) {
    text += fmt::format("| {} | {} | {} | {}{} |\n", name_of(parameter), default_of(parameter),
                        parameter.expectation(), parameter.help, limits_of(parameter));
  }
  return text;
}

template std::string ConfigParameter::table_as_markdown();
template std::string V2Parameter::table_as_markdown();

}  // namespace smp::topology
