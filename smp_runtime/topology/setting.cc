// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/topology/setting.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/text.h"

namespace smp::topology {
namespace {

using nlohmann::json;

void add_once(Settings& settings, std::string name, Value value) {
  const bool repeated = std::any_of(settings.entries.begin(), settings.entries.end(),
                                    [&](const Setting& entry) { return entry.name == name; });
  if (repeated) {
    throw ConfigError("{}: key \"{}\" is given twice; keep one of them", settings.where, name);
  }
  settings.entries.push_back({std::move(name), std::move(value)});
}

Value scalar(const json& node, const std::string& name, const std::string& where) {
  switch (node.type()) {
    case json::value_t::null:
      return std::monostate{};
    case json::value_t::boolean:
      return node.get<bool>();
    case json::value_t::number_integer:
      return node.get<std::int64_t>();
    case json::value_t::number_unsigned:
      if (node.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
        return node.get<double>();  // out of every range; the range check reports it
      }
      return node.get<std::int64_t>();
    case json::value_t::number_float:
      return node.get<double>();
    case json::value_t::string:
      return node.get<std::string>();
    default:
      throw ConfigError("{}: {} is {}; expected a number, true, false or a string", where, name,
                        node.dump());
  }
}

[[noreturn]] void refuse_json(std::string_view text, const json::parse_error& error,
                              const std::string& where) {
  const size_t offset = std::min(text.size(), error.byte > 0 ? error.byte - 1 : 0);
  const std::string_view before = text.substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n');
  const size_t column = line_start == std::string_view::npos ? offset + 1 : offset - line_start;
  throw ConfigError(
      "{}: not valid JSON at line {}, column {}: {}; expected an object such as "
      R"({{"tensor_parallel_degree": 2}})",
      where, line, column, offset < text.size() ? text.substr(offset, 20) : "the text ends here");
}

json parse_json(std::string_view text, const std::string& where) {
  // The library keeps the last of two equal keys in silence, so keys are counted as they pass.
  std::vector<std::string> keys;
  const auto refuse_repeats = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::key && depth == 1) {
      const auto& name = parsed.get_ref<const std::string&>();
      if (std::find(keys.begin(), keys.end(), name) != keys.end()) {
        throw ConfigError("{}: key \"{}\" is given twice; keep one of them", where, name);
      }
      keys.push_back(name);
    }
    return true;
  };
  try {
    return json::parse(text, refuse_repeats);
  } catch (const json::parse_error& error) {
    refuse_json(text, error, where);
  } catch (const json::out_of_range& error) {
    const std::string_view said = error.what();  // "[json.exception.out_of_range.406] number…"
    throw ConfigError("{}: {}; give a smaller number", where, said.substr(said.find("] ") + 2));
  }
}

Settings from_json(std::string_view text, std::string where) {
  const json root = parse_json(text, where);
  Settings settings{.where = std::move(where), .entries = {}};
  for (const auto& [name, node] : root.items()) {
    add_once(settings, name, scalar(node, name, settings.where));
  }
  return settings;
}

bool is_quoted(std::string_view text) {
  return text.size() >= 2 && (text.front() == '"' || text.front() == '\'') &&
         text.back() == text.front();
}

Value guess(std::string_view text) {
  if (is_quoted(text)) return std::string(text.substr(1, text.size() - 2));
  if (text == "true" || text == "True") return true;
  if (text == "false" || text == "False") return false;
  if (text == "null" || text == "None") return std::monostate{};
  const std::string_view digits = text.starts_with('+') ? text.substr(1) : text;
  if (const auto number = parse_number<std::int64_t>(digits)) return *number;
  if (const auto number = parse_number<double>(digits)) return *number;
  return std::string(text);
}

// Splits at commas that stand outside quotes.
std::vector<std::string_view> split_items(std::string_view text) {
  std::vector<std::string_view> items;
  char quote = 0;
  size_t start = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == ',') {
      items.push_back(text.substr(start, i - start));
      start = i + 1;
    }
  }
  items.push_back(text.substr(start));
  return items;
}

Settings from_pairs(std::string_view text, std::string where) {
  Settings settings{.where = std::move(where), .entries = {}};
  for (const std::string_view item : split_items(text)) {
    const std::string_view pair = trimmed(item);
    if (pair.empty()) continue;  // a trailing comma
    const size_t equals = pair.find('=');
    const std::string_view name = trimmed(pair.substr(0, equals));
    if (equals == std::string_view::npos || name.empty()) {
      throw ConfigError(
          "{}: found \"{}\"; expected JSON (an object in braces) or a list such as "
          "tensor_parallel_degree=2,activation_loading_horizon=3",
          settings.where, pair);
    }
    add_once(settings, std::string(name), guess(trimmed(pair.substr(equals + 1))));
  }
  return settings;
}

}  // namespace

std::string to_text(const Value& value) {
  return std::visit(
      [](const auto& held) -> std::string {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, std::monostate>) {
          return "null";
        } else {
          return json_line(json(held));
        }
      },
      value);
}

Settings parse_settings(std::string_view text, std::string where) {
  const std::string_view body = trimmed(text);
  if (body.starts_with('{')) return from_json(text, std::move(where));
  if (!body.starts_with('"')) return from_pairs(body, std::move(where));
  const auto inner = parse_json(text, where).get<std::string>();  // starts with a quote: a string
  if (trimmed(inner).starts_with('"')) return from_pairs(inner, std::move(where));  // refuses it
  return parse_settings(inner, std::move(where));
}

}  // namespace smp::topology
