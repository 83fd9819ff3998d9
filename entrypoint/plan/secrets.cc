// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/secrets.h"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/ranges.h>

#include "entrypoint/config/shell_text.h"
#include "opt_ml_layout/json_document.h"
#include "opt_ml_layout/python_text.h"
#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

using opt_ml::Value;

constexpr std::array<std::string_view, 12> kSecretWords = {
    "SECRET",     "SECRETS",     "PASSWORD", "PASSWD", "TOKEN",   "PRIVATE",
    "CREDENTIAL", "CREDENTIALS", "CREDS",    "APIKEY", "API_KEY", "ACCESS_KEY"};

/// "--api-key" and "api.key" become "_API_KEY_", camelCase "apiKey" too.
std::string normalised(std::string_view name) {
  std::string result = "_";
  char previous = '\0';
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    const bool starts_word =
        std::isupper(byte) && std::islower(static_cast<unsigned char>(previous));
    if (starts_word) result += '_';
    result += std::isalnum(byte) ? static_cast<char>(std::toupper(byte)) : '_';
    previous = c;
  }
  return result + "_";
}

/// A value that is JSON with secrets inside, such as SM_HPS.
std::string masked_text(const std::string& text) {
  const bool may_be_json = text.starts_with('{') || text.starts_with('[');
  const auto value = may_be_json ? opt_ml::try_parse_json(text) : std::nullopt;
  if (!value) return text;
  const Value masked = mask_secrets(*value);
  return masked == *value ? text : opt_ml::to_json(masked);
}

/// `k=v,k2=v2`, which is how an object reaches the command line, or one override: a value is masked
/// when its name is secret, whatever commas it has.
std::string masked_pairs(const std::string& text) {
  std::vector<std::string> pairs;
  bool hides = false;
  for (std::string& pair : smp::split(text, ',')) {
    const std::size_t mark = pair.find('=');
    if (mark == std::string::npos && hides) continue;
    hides = mark != std::string::npos && is_secret_name(pair.substr(0, mark));
    if (hides) pair.replace(mark + 1, std::string::npos, kMask);
    pairs.push_back(std::move(pair));
  }
  return fmt::format("{}", fmt::join(pairs, ","));
}

/// The same, or an override whose value is JSON.
std::string masked_word(const std::string& word) {
  const std::size_t value = word.find('=') + 1;
  const std::string text = masked_text(word.substr(value));
  const bool is_changed = value != 0 && text != word.substr(value);
  return masked_text(masked_pairs(is_changed ? word.substr(0, value) + text : word));
}

/// The user's arguments alternate names and values, or are overrides.
bool is_argument_list(const Value::List& list) {
  const auto is_text = [](const Value& element) { return element.text() != nullptr; };
  return std::ranges::all_of(list, is_text) ||
         (is_text(list.front()) && list.front().text()->starts_with('-'));
}

Value masked_list(const Value::List& list) {
  Value::List result;
  if (!is_argument_list(list)) {
    for (const Value& element : list) result.push_back(mask_secrets(element));
    return result;
  }
  std::vector<std::string> words;
  for (const Value& element : list) words.push_back(opt_ml::environment_text(element));
  return Value::list_of(mask_secrets(words));
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

// `https://aws:TOKEN@host/`, as pip and git print it.
void mask_url_passwords(std::string& text) {
  constexpr std::string_view kMark = "://";
  for (std::size_t at = 0; (at = text.find(kMark, at)) != std::string::npos;) {
    at += kMark.size();
    const std::size_t end = std::min(text.find_first_of(" \t\n\"'/<>", at), text.size());
    const std::size_t host = text.rfind('@', end);
    const std::size_t colon = text.find(':', at);
    if (host == std::string::npos || host < at || colon >= host) continue;
    text.replace(colon + 1, host - colon - 1, kMask);
  }
}

}  // namespace

bool is_secret_name(std::string_view name) {
  const std::string text = normalised(name);
  return std::ranges::any_of(kSecretWords, [&](std::string_view word) {
    return text.find("_" + std::string(word) + "_") != std::string::npos;
  });
}

std::vector<std::string> mask_secrets(std::span<const std::string> argv) {
  std::vector<std::string> result;
  for (std::size_t i = 0; i < argv.size(); ++i) {
    const std::string& word = argv[i];
    const bool is_shell_text = i >= 2 && argv[i - 1] == "-c" && argv[i - 2].ends_with("/sh");
    const bool follows_secret = i > 0 && argv[i - 1].starts_with('-') &&
                                argv[i - 1].find('=') == std::string::npos &&
                                is_secret_name(argv[i - 1]);
    if (follows_secret) {
      result.emplace_back(kMask);
    } else if (is_shell_text) {
      const auto words = shell_split(word, {}, "command");
      const auto masked = mask_secrets(words);
      // As it is where nothing is masked: texts are compared, and a trailing blank is part of them.
      result.push_back(masked == words ? word : shell_join(masked));
    } else {
      result.push_back(masked_word(word));
    }
  }
  return result;
}

std::vector<Variable> mask_secrets(std::span<const Variable> environment) {
  std::vector<Variable> result(environment.begin(), environment.end());
  for (Variable& variable : result) {
    variable.value =
        is_secret_name(variable.name) ? std::string(kMask) : masked_text(variable.value);
  }
  return result;
}

Value mask_secrets(const Value& value) {
  if (const Value::List* list = value.list()) return masked_list(*list);
  if (value.object() == nullptr) return value;
  Value result = Value::Object{};
  for (const Value::Member& member : *value.object()) {
    const bool secret = is_secret_name(member.key) && !member.value.is_null();
    result.set(member.key, secret ? Value(kMask) : mask_secrets(member.value));
  }
  return result;
}

SecretValues::SecretValues(std::span<const Variable> environment,
                           std::span<const std::string> inherited) {
  for (const Variable& variable : environment) add(variable.name, variable.value);
  for (const std::string& entry : inherited) {
    const std::size_t mark = entry.find('=');
    if (mark == std::string::npos) continue;
    add(std::string_view(entry).substr(0, mark), std::string_view(entry).substr(mark + 1));
  }
  std::ranges::sort(values_, [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() > b.size() : a < b;
  });
  values_.erase(std::unique(values_.begin(), values_.end()), values_.end());
}

void SecretValues::add(std::string_view name, std::string_view value) {
  if (value.size() >= kShortest && is_secret_name(name)) values_.emplace_back(value);
}

std::string SecretValues::mask(std::string text) const {
  for (const std::string& value : values_) replace_all(text, value, kMask);
  mask_url_passwords(text);
  return text;
}

}  // namespace entrypoint
