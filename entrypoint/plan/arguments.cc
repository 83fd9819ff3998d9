// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/arguments.h"

#include <algorithm>

#include "opt_ml_layout/outputs.h"
#include "opt_ml_layout/python_text.h"
#include "opt_ml_layout/utf8.h"
#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

using opt_ml::Value;
using Members = std::vector<const Value::Member*>;

Members members_of(const Value& object, ArgumentOrder order) {
  Members members;
  for (const Value::Member& member : *object.object()) members.push_back(&member);
  if (order == ArgumentOrder::kSorted) {
    std::ranges::sort(members, {},
                      [](const Value::Member* m) -> const std::string& { return m->key; });
  }
  return members;
}

std::string argument_name(const std::string& key) {
  if (key.empty()) return "";
  const bool one_character = opt_ml::decode_utf8(key).length == key.size();
  return (one_character ? "-" : "--") + key;
}

std::string argument_value(const Value& value, ArgumentStyle style) {
  if (style == ArgumentStyle::kJson) return opt_ml::environment_text(value);
  if (value.is_null()) return "";
  if (value.object() == nullptr) return opt_ml::python_str(value);
  std::string text;
  std::string_view separator;
  for (const Value::Member* member : members_of(value, ArgumentOrder::kSorted)) {
    text += separator;
    text += member->key + "=" + opt_ml::python_str(member->value);
    separator = ",";
  }
  return text;
}

void check(const std::string& argument, const std::string& key) {
  if (argument.find('\0') != std::string::npos) {
    throw smp::ConfigError(
        "hyperparameter \"{}\": holds a NUL character, which no program can be given; remove it",
        key.substr(0, key.find('\0')));
  }
  if (argument.size() > kLongestArgumentBytes) {
    throw smp::ConfigError(
        "hyperparameter \"{}\": {} bytes, an argument holds at most {}; put the value in a file of "
        "a channel",
        opt_ml::utf8_prefix(key, 40), argument.size(), kLongestArgumentBytes);
  }
}

}  // namespace

std::vector<std::string> user_arguments(const Value& hyperparameters, ArgumentStyle style,
                                        ArgumentOrder order) {
  std::vector<std::string> arguments;
  for (const Value::Member* member : members_of(hyperparameters, order)) {
    arguments.push_back(argument_name(member->key));
    check(arguments.back(), member->key);
    arguments.push_back(argument_value(member->value, style));
    check(arguments.back(), member->key);
  }
  return arguments;
}

}  // namespace entrypoint
