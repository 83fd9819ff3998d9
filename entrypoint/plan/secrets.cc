// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/secrets.h"

#include <algorithm>
#include <cctype>

#include "entrypoint/config/shell_text.h"
#include "opt_ml_layout/json_document.h"
#include "opt_ml_layout/python_text.h"
#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

using opt_ml::Value;
using Words = std::vector<std::string>;

constexpr std::string_view kBlanks = " \t\r\n";

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
}

/// The user's arguments alternate names and values, or are overrides.
bool is_argument_list(const Value::List& list) {
  const auto is_text = [](const Value& element) { return element.text() != nullptr; };
  return std::ranges::all_of(list, is_text) ||
         (is_text(list.front()) && list.front().text()->starts_with('-'));
}

std::optional<Words> try_shell_split(const std::string& text) {
  try {
    return shell_split(text, {}, "text");
  } catch (const smp::ConfigError&) {
    return std::nullopt;  // prose with an apostrophe
  }
}

/// The NAME of a NAME=value whose `=` is at `mark`; empty where there is none.
std::string_view name_before(std::string_view text, std::size_t mark) {
  std::size_t begin = mark;
  while (begin > 0 && is_name_character(text[begin - 1])) --begin;
  // A secret may end in `=`, as base64 does, and hold more of them.
  const bool is_value = begin > 0 && text[begin - 1] == '=';
  return is_value ? std::string_view() : text.substr(begin, mark - begin);
}

/// The place of the comma of the next `,NAME=`, else the end.
std::size_t end_of_value(std::string_view text, std::size_t from) {
  for (std::size_t comma = text.find(',', from); comma != text.npos;
       comma = text.find(',', comma + 1)) {
    std::size_t end = std::min(text.find_first_not_of(kBlanks, comma + 1), text.size());
    const std::size_t begin = end;
    while (end < text.size() && is_name_character(text[end])) ++end;
    if (end > begin && end < text.size() && text[end] == '=') return comma;
  }
  return text.size();
}

/// Masks what stands behind a name, and tells `found` of it.
class ByName {
 public:
  explicit ByName(const SecretNames& names, SecretValues* found = nullptr)
      : names_(names), found_(found) {}

  [[nodiscard]] Value value(const Value& value) const {
    if (const Value::List* list = value.list()) return elements(*list);
    if (value.text() != nullptr) return text(*value.text());
    if (value.object() == nullptr) return value;
    Value result = Value::Object{};
    for (const Value::Member& member : *value.object()) {
      result.set(member.key, named(member.key, member.value));
    }
    return result;
  }

  [[nodiscard]] Value named(std::string_view name, const Value& value) const {
    const Secrecy secrecy = value.is_null() ? Secrecy::kNone : names_.of(name);
    if (secrecy == Secrecy::kNone) return this->value(value);
    note(value, secrecy);
    return kMask;
  }

  [[nodiscard]] Words words(std::span<const std::string> argv) const {
    Words result;
    for (std::size_t i = 0; i < argv.size(); ++i) {
      const std::string& word = argv[i];
      const bool is_shell_text = i >= 2 && argv[i - 1] == "-c" && argv[i - 2].ends_with("/sh");
      const bool follows_option =
          i > 0 && argv[i - 1].starts_with('-') && argv[i - 1].find('=') == std::string::npos;
      const Secrecy secrecy = follows_option ? names_.of(argv[i - 1]) : Secrecy::kNone;
      if (secrecy != Secrecy::kNone) {
        note(word, secrecy);
        result.emplace_back(kMask);
      } else {
        result.push_back(is_shell_text ? command(word).value_or(word) : text(word));
      }
    }
    return result;
  }

 private:
  [[nodiscard]] Value elements(const Value::List& list) const {
    if (list.empty() || !is_argument_list(list)) {
      Value::List result;
      for (const Value& element : list) result.push_back(value(element));
      return result;
    }
    Words texts;
    for (const Value& element : list) texts.push_back(opt_ml::environment_text(element));
    return Value::list_of(words(texts));
  }

  [[nodiscard]] std::string text(const std::string& text) const {
    if (const auto masked = json(text)) return *masked;
    const std::size_t blank = text.find_first_of(kBlanks);
    const std::size_t mark = text.find('=');
    if (mark < blank) {
      // A blank belongs to the secret in `password=a b`, and ends it in `-x PASSWORD=a -x B=b`.
      if (names_.of(name_before(text, mark)) != Secrecy::kNone) return pairs(text);
      if (const auto masked = json(text.substr(mark + 1)))
        return text.substr(0, mark + 1) + *masked;
    }
    const auto masked = blank != text.npos ? command(text) : std::nullopt;
    return masked ? *masked : pairs(text);
  }

  /// Nothing for a text that is no object or list.
  [[nodiscard]] std::optional<std::string> json(const std::string& text) const {
    if (!text.starts_with('{') && !text.starts_with('[')) return std::nullopt;
    const auto json = opt_ml::try_parse_json(text);
    if (!json) return std::nullopt;
    const Value masked = value(*json);
    return masked == *json ? text : opt_ml::to_json(masked);
  }

  /// Nothing for a text that is no command. One without a secret stays as it is, to its blanks.
  [[nodiscard]] std::optional<std::string> command(const std::string& text) const {
    const auto split = try_shell_split(text);
    if (!split) return std::nullopt;
    const Words masked = words(*split);
    return masked == *split ? text : shell_join(masked);
  }

  /// `k=v,k2=v2`, which is how an object reaches the command line, one override, or a URL.
  [[nodiscard]] std::string pairs(const std::string& text) const {
    if (found_ != nullptr) found_->add_url_passwords(text);
    std::string result;
    std::size_t done = 0;
    for (std::size_t mark = text.find('='); mark != text.npos;
         mark = text.find('=', std::max(mark + 1, done))) {
      const Secrecy secrecy = names_.of(name_before(text, mark));
      if (secrecy == Secrecy::kNone) continue;
      const std::size_t begin = mark + 1;
      const std::size_t end = end_of_value(text, begin);
      const std::string secret = text.substr(begin, end - begin);
      note(secret, secrecy);
      // The first of several where others than commas part them, as in a URL.
      note(secret.substr(0, secret.find_first_of(" \t\r\n,;&")), secrecy);
      result.append(text, done, begin - done).append(kMask);
      done = end;
    }
    return result.append(text, done);
  }

  void note(const Value& value, Secrecy secrecy) const {
    if (found_ == nullptr) return;
    if (value.object() != nullptr) {
      for (const Value::Member& member : *value.object()) note(member.value, secrecy);
    } else if (value.list() != nullptr) {
      for (const Value& element : *value.list()) note(element, secrecy);
    } else {
      const std::string text = opt_ml::environment_text(value);
      found_->add(text, secrecy);
      found_->add_url_passwords(text);
      const auto inner = opt_ml::try_parse_json(text);
      const bool has_parts = inner && (inner->object() != nullptr || inner->list() != nullptr);
      if (has_parts) note(*inner, secrecy);
    }
  }

  const SecretNames& names_;
  SecretValues* found_;
};

Value by_value(const SecretValues& values, const Value& value) {
  if (value.text() != nullptr) return values.mask(*value.text());
  if (value.list() != nullptr) {
    Value::List result;
    for (const Value& element : *value.list()) result.push_back(by_value(values, element));
    return result;
  }
  if (value.object() == nullptr) return value;
  Value result = Value::Object{};
  for (const Value::Member& member : *value.object()) {
    result.set(member.key, by_value(values, member.value));
  }
  return result;
}

}  // namespace

Secrets::Secrets(const smp::Variables& environment, const opt_ml::Hyperparameters& parameters)
    : names_(smp::value_or(environment, "SM_LAUNCH_SECRETS")) {
  const ByName finder(names_, &values_);
  for (const auto& [name, value] : environment) static_cast<void>(finder.named(name, value));
  for (const Value* part : {&parameters.user, &parameters.framework, &parameters.reserved}) {
    static_cast<void>(finder.value(*part));
  }
}

std::vector<std::string> Secrets::mask(std::span<const std::string> argv) const {
  Words result = ByName(names_).words(argv);
  for (std::string& word : result) word = mask(std::move(word));
  return result;
}

std::vector<Variable> Secrets::mask(std::span<const Variable> environment) const {
  std::vector<Variable> result(environment.begin(), environment.end());
  for (Variable& variable : result) {
    const Value masked = ByName(names_).named(variable.name, variable.value);
    variable.value = mask(*masked.text());
  }
  return result;
}

Value Secrets::mask(const Value& value) const {
  return by_value(values_, ByName(names_).value(value));
}

}  // namespace entrypoint
