// SPDX-License-Identifier: Apache-2.0
// A JSON value as Python's json module would hold it. nlohmann::json cannot stand in: it has no NaN
// or infinity, turns integers beyond 64 bits into doubles, and user scripts see the difference.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace opt_ml {

class Value {
 public:
  struct Null {
    bool operator==(const Null&) const = default;
  };
  /// Decimal digits with an optional minus, any length, no leading zeros, never "-0".
  struct Integer {
    std::string digits;
    bool operator==(const Integer&) const = default;
  };
  struct Member;
  using List = std::vector<Value>;
  using Object = std::vector<Member>;  ///< file order, each key once

  Value();  ///< null
  Value(const Value& other);
  Value(Value&& other) noexcept;
  Value& operator=(const Value& other);
  Value& operator=(Value&& other) noexcept;
  ~Value();

  Value(bool value);
  Value(int value);
  Value(std::int64_t value);
  Value(double value);
  Value(Integer value);
  Value(std::string value);
  Value(std::string_view value);
  Value(const char* value);
  Value(List value);
  Value(Object value);

  /// A list of texts.
  static Value list_of(const std::vector<std::string>& texts);

  [[nodiscard]] bool is_null() const { return std::holds_alternative<Null>(data_); }

  // Views: null pointer or nothing when the value is of another kind.
  [[nodiscard]] std::optional<bool> boolean() const;
  [[nodiscard]] std::optional<std::int64_t> integer() const;  ///< nothing beyond 64 bits, too
  [[nodiscard]] const Integer* big_integer() const { return std::get_if<Integer>(&data_); }
  [[nodiscard]] const double* real() const { return std::get_if<double>(&data_); }
  [[nodiscard]] const std::string* text() const { return std::get_if<std::string>(&data_); }
  [[nodiscard]] const List* list() const { return std::get_if<List>(&data_); }
  [[nodiscard]] const Object* object() const { return std::get_if<Object>(&data_); }

  /// The member of an object; null pointer when absent or when this is no object.
  [[nodiscard]] const Value* find(std::string_view key) const;

  /// The text of a member; empty when it is absent or no text.
  [[nodiscard]] std::string text_of(std::string_view key) const;

  /// Adds a member, or replaces its value in place as a Python dict does. Turns null into an
  /// object; any other kind is an InternalError.
  void set(std::string key, Value value);

  /// "null", "a bool", "an integer", "a number", "text", "a list", "an object": for messages.
  [[nodiscard]] std::string_view kind_name() const;

  bool operator==(const Value& other) const;

 private:
  // Nothing that makes or ends one can stand in the class: Member is not complete there.
  std::variant<Null, bool, Integer, double, std::string, List, Object> data_;
};

struct Value::Member {
  std::string key;
  Value value;
  bool operator==(const Member&) const = default;
};

}  // namespace opt_ml
