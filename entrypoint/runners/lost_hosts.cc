// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/runners/lost_hosts.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "entrypoint/process/spawn.h"
#include "entrypoint/runners/child_command.h"
#include "opt_ml_layout/json_document.h"
#include "opt_ml_layout/python_text.h"

namespace entrypoint {
namespace {

using opt_ml::Value;

constexpr std::array kLists = {"hosts", "distribution_hosts", "current_instance_group_hosts"};
constexpr std::array kVariables = {"SM_TRAINING_ENV", "SM_RESOURCE_CONFIG"};
constexpr const char* kOfUser = "hyperparameters";
constexpr const char* kGroupHosts = "SM_CURRENT_INSTANCE_GROUP_HOSTS";
constexpr const char* kNumber = "SM_CURRENT_HOST_RANK";

std::set<std::string> texts_of(std::string_view json) {
  const std::optional<Value> value = opt_ml::try_parse_json(json);
  std::set<std::string> texts;
  if (!value || value->list() == nullptr) return texts;
  for (const Value& one : *value->list()) {
    if (one.text() != nullptr) texts.insert(*one.text());
  }
  return texts;
}

Value::List without(const Value::List& hosts, const std::set<std::string>& lost) {
  Value::List left = hosts;
  std::erase_if(left, [&](const Value& one) { return one.text() && lost.contains(*one.text()); });
  return left;
}

/// `value` with fewer hosts in the lists that name some, however deep they lie.
Value without(const Value& value, const std::set<std::string>& lost) {
  if (const Value::List* list = value.list()) {
    Value::List result;
    for (const Value& one : *list) result.push_back(without(one, lost));
    return result;
  }
  if (value.object() == nullptr) return value;
  Value result = Value::Object{};
  for (const Value::Member& member : *value.object()) {
    if (member.key == kOfUser) {
      result.set(member.key, member.value);
      continue;
    }
    const bool names_hosts = std::ranges::find(kLists, member.key) != kLists.end();
    const bool is_list = names_hosts && member.value.list() != nullptr;
    result.set(member.key,
               is_list ? Value(without(*member.value.list(), lost)) : without(member.value, lost));
  }
  return result;
}

}  // namespace

void leave_out_lost_hosts(std::vector<std::string>& environment, std::string_view before,
                          std::string_view now) {
  const std::set<std::string> left = texts_of(now);
  std::set<std::string> lost = texts_of(before);
  std::erase_if(lost, [&](const std::string& host) { return left.contains(host); });
  if (lost.empty()) return;
  for (const char* name : kVariables) {
    const auto value = opt_ml::try_parse_json(value_of(environment, name));
    if (value) set_variable(environment, name, opt_ml::to_json(without(*value, lost)));
  }
  const auto group = opt_ml::try_parse_json(value_of(environment, kGroupHosts));
  if (group && group->list() != nullptr) {
    set_variable(environment, kGroupHosts, opt_ml::to_json(Value(without(*group->list(), lost))));
  }
  const auto own = left.find(std::string(value_of(environment, "SM_CURRENT_HOST")));
  if (own != left.end()) {
    set_variable(environment, kNumber, std::to_string(std::distance(left.begin(), own)));
  }
}

}  // namespace entrypoint
