// SPDX-License-Identifier: Apache-2.0
#include "opt_ml_layout/value.h"

#include <algorithm>
#include <utility>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/text.h"

namespace opt_ml {

Value::Value() = default;
Value::Value(const Value& other) = default;
Value::Value(Value&& other) noexcept = default;
Value& Value::operator=(const Value& other) = default;
Value& Value::operator=(Value&& other) noexcept = default;
Value::~Value() = default;

Value::Value(bool value) : data_(value) {}
Value::Value(int value) : Value(std::int64_t{value}) {}
Value::Value(std::int64_t value) : data_(Integer{std::to_string(value)}) {}
Value::Value(double value) : data_(value) {}
Value::Value(Integer value) : data_(std::move(value)) {}
Value::Value(std::string value) : data_(std::move(value)) {}
Value::Value(std::string_view value) : data_(std::string(value)) {}
Value::Value(const char* value) : data_(std::string(value)) {}
Value::Value(List value) : data_(std::move(value)) {}
Value::Value(Object value) : data_(std::move(value)) {}

bool Value::operator==(const Value& other) const { return data_ == other.data_; }

Value Value::list_of(const std::vector<std::string>& texts) {
  return List(texts.begin(), texts.end());
}

std::optional<bool> Value::boolean() const {
  const bool* value = std::get_if<bool>(&data_);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<std::int64_t> Value::integer() const {
  const Integer* value = big_integer();
  if (value == nullptr) return std::nullopt;
  return smp::parse_number<std::int64_t>(value->digits);
}

const Value* Value::find(std::string_view key) const {
  const Object* members = object();
  if (members == nullptr) return nullptr;
  const auto member = std::ranges::find(*members, key, &Member::key);
  return member == members->end() ? nullptr : &member->value;
}

std::string Value::text_of(std::string_view key) const {
  const Value* value = find(key);
  return value == nullptr || value->text() == nullptr ? "" : *value->text();
}

void Value::set(std::string key, Value value) {
  if (is_null()) data_ = Object{};
  auto* members = std::get_if<Object>(&data_);
  SMP_CHECK(members != nullptr, "member \"{}\" set on {}", key, kind_name());
  const auto member = std::ranges::find(*members, key, &Member::key);
  if (member == members->end()) {
    members->push_back({std::move(key), std::move(value)});
  } else {
    member->value = std::move(value);
  }
}

std::string_view Value::kind_name() const {
  struct Name {
    std::string_view operator()(const Null&) const { return "null"; }
    std::string_view operator()(bool) const { return "a bool"; }
    std::string_view operator()(const Integer&) const { return "an integer"; }
    std::string_view operator()(double) const { return "a number"; }
    std::string_view operator()(const std::string&) const { return "text"; }
    std::string_view operator()(const List&) const { return "a list"; }
    std::string_view operator()(const Object&) const { return "an object"; }
  };
  return std::visit(Name{}, data_);
}

}  // namespace opt_ml
