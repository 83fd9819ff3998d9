// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/arguments.h"

#include <algorithm>
#include <utility>

#include "opt_ml_layout/outputs.h"
#include "opt_ml_layout/python_text.h"
#include "opt_ml_layout/utf8.h"
#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

using opt_ml::Value;
using Members = std::vector<const Value::Member*>;

constexpr std::size_t kLongestName = 64 * 1024;  // [bytes] of a hyperparameter
constexpr std::size_t kWorthLeavingOut = 1024;   // [bytes]

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

std::string override_value(const Value& value) {
  return value.is_null() ? "null" : opt_ml::environment_text(value);
}

void check(const std::string& argument, const std::string& key) {
  if (argument.find('\0') != std::string::npos) {
    throw smp::ConfigError(
        "hyperparameter \"{}\": holds a NUL character, which no program can be given; remove it",
        key.substr(0, key.find('\0')));
  }
  if (key.size() > kLongestName) {
    throw smp::ConfigError("hyperparameter \"{}...\": its name has {} bytes; shorten it to {}",
                           opt_ml::utf8_prefix(key, 40), key.size(), kLongestName);
  }
}

}  // namespace

UserArguments user_arguments(const Value& hyperparameters, ArgumentStyle style,
                             ArgumentOrder order) {
  struct Sent {
    const std::string& key;
    Words words;
    bool is_left_out;
  };
  std::vector<Sent> all;
  std::size_t bytes = 0;
  for (const Value::Member* member : members_of(hyperparameters, order)) {
    const std::string& key = member->key;
    Words words = style == ArgumentStyle::kOverrides
                      ? Words{key + "=" + override_value(member->value)}
                      : Words{argument_name(key), argument_value(member->value, style)};
    for (const std::string& word : words) check(word, key);
    const bool is_too_long = words.back().size() > kLongestArgumentBytes;
    if (!is_too_long) bytes += words.back().size();
    all.push_back({key, std::move(words), is_too_long});
  }
  while (bytes > kAllArgumentsBytes) {
    Sent& longest = *std::ranges::max_element(
        all, {}, [](const Sent& sent) { return sent.is_left_out ? 0 : sent.words.back().size(); });
    if (longest.words.back().size() < kWorthLeavingOut) break;
    longest.is_left_out = true;
    bytes -= longest.words.back().size();
  }
  UserArguments arguments;
  for (const Sent& sent : all) {
    if (sent.is_left_out) {
      arguments.left_out.push_back(sent.key);
    } else {
      append(arguments.words, sent.words);
    }
  }
  return arguments;
}

}  // namespace entrypoint
