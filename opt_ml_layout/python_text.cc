// SPDX-License-Identifier: Apache-2.0
#include "opt_ml_layout/python_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "opt_ml_layout/utf8.h"

namespace opt_ml {
namespace {

/// Calls `visit` with each character and its bytes.
template <typename Visit>
void for_each_character(std::string_view text, Visit visit) {
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Character next = decode_utf8(text.substr(i));
    visit(next.code, text.substr(i, next.length));
    i += next.length;
  }
}

void append_json_text(std::string& out, std::string_view text) {
  constexpr std::string_view kNamed = "\"\\\b\f\n\r\t";
  constexpr std::string_view kNames = "\"\\bfnrt";
  out += '"';
  for_each_character(text, [&](char32_t code, std::string_view bytes) {
    const std::size_t named = code < 0x80 ? kNamed.find(static_cast<char>(code)) : kNamed.npos;
    if (named != kNamed.npos) {
      out += '\\';
      out += kNames[named];
    } else if (code >= 0x20 && code < 0x7F) {
      out += bytes;
    } else if (code < 0x10000) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", unsigned{code});
    } else {
      const unsigned offset = unsigned{code} - 0x10000U;
      fmt::format_to(std::back_inserter(out), "\\u{:04x}\\u{:04x}", 0xD800U + (offset >> 10U),
                     0xDC00U + (offset & 0x3FFU));
    }
  });
  out += '"';
}

std::string json_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return python_float(value);
}

/// False for lists and objects, which this leaves out.
bool append_json_scalar(std::string& out, const Value& value) {
  if (value.is_null()) {
    out += "null";
  } else if (const auto boolean = value.boolean()) {
    out += *boolean ? "true" : "false";
  } else if (const auto* integer = value.big_integer()) {
    out += integer->digits;
  } else if (const double* real = value.real()) {
    out += json_float(*real);
  } else if (const std::string* text = value.text()) {
    append_json_text(out, *text);
  } else {
    return false;
  }
  return true;
}

std::vector<const Value::Member*> members_of(const Value::Object& object, bool sorted) {
  std::vector<const Value::Member*> members;
  for (const Value::Member& member : object) members.push_back(&member);
  // UTF-8 sorts as its code points do, which is Python's order of text.
  const auto key = [](const Value::Member* member) -> const std::string& { return member->key; };
  if (sorted) std::ranges::sort(members, {}, key);
  return members;
}

/// Without `indent` on one line, with sorted keys; with it one member a line, in their own order.
void append_json(std::string& out, const Value& value, std::optional<int> indent, int depth = 0) {
  if (append_json_scalar(out, value)) return;
  const auto new_line = [&](int level) {
    if (!indent) return;
    out += '\n';
    out.append(static_cast<std::size_t>(*indent * level), ' ');
  };
  std::string_view separator;
  const auto begin_member = [&] {
    out += separator;
    separator = ",";
    new_line(depth + 1);
  };
  const Value::List* list = value.list();
  out += list != nullptr ? '[' : '{';
  if (list != nullptr) {
    for (const Value& element : *list) {
      begin_member();
      append_json(out, element, indent, depth + 1);
    }
  } else {
    for (const Value::Member* member : members_of(*value.object(), !indent)) {
      begin_member();
      append_json_text(out, member->key);
      out += indent ? ": " : ":";
      append_json(out, member->value, indent, depth + 1);
    }
  }
  const bool is_empty = separator.empty();
  if (!is_empty) new_line(depth);
  out += list != nullptr ? ']' : '}';
}

void append_repr_text(std::string& out, std::string_view text) {
  const bool has_single = text.find('\'') != text.npos;
  const bool has_double = text.find('"') != text.npos;
  const char32_t quote = has_single && !has_double ? '"' : '\'';
  out += static_cast<char>(quote);
  for_each_character(text, [&](char32_t code, std::string_view bytes) {
    if (code == quote || code == '\\') {
      out += '\\';
      out += bytes;
    } else if (code == '\n') {
      out += "\\n";
    } else if (code == '\r') {
      out += "\\r";
    } else if (code == '\t') {
      out += "\\t";
    } else if (is_printable(code)) {
      out += bytes;
    } else if (code < 0x100) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", unsigned{code});
    } else if (code < 0x10000) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", unsigned{code});
    } else {
      fmt::format_to(std::back_inserter(out), "\\U{:08x}", unsigned{code});
    }
  });
  out += static_cast<char>(quote);
}

void append_repr(std::string& out, const Value& value) {
  if (value.is_null()) {
    out += "None";
  } else if (const auto boolean = value.boolean()) {
    out += *boolean ? "True" : "False";
  } else if (const auto* integer = value.big_integer()) {
    out += integer->digits;
  } else if (const double* real = value.real()) {
    out += python_float(*real);
  } else if (const std::string* text = value.text()) {
    append_repr_text(out, *text);
  } else if (const Value::List* list = value.list()) {
    std::string_view separator;
    out += '[';
    for (const Value& element : *list) {
      out += separator;
      append_repr(out, element);
      separator = ", ";
    }
    out += ']';
  } else {
    std::string_view separator;
    out += '{';
    for (const Value::Member& member : *value.object()) {
      out += separator;
      append_repr_text(out, member.key);
      out += ": ";
      append_repr(out, member.value);
      separator = ", ";
    }
    out += '}';
  }
}

}  // namespace

std::string to_json(const Value& value) {
  std::string out;
  append_json(out, value, std::nullopt);
  return out;
}

std::string to_json_indented(const Value& value, int indent) {
  std::string out;
  append_json(out, value, indent);
  return out;
}

std::string python_repr(const Value& value) {
  std::string out;
  append_repr(out, value);
  return out;
}

std::string python_str(const Value& value) {
  const std::string* text = value.text();
  return text != nullptr ? *text : python_repr(value);
}

std::string python_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  // "d.ddde±xx" with the shortest digits; its exponent decides which form Python prints.
  std::array<char, 64> buffer;
  const auto scientific =
      std::to_chars(buffer.begin(), buffer.end(), value, std::chars_format::scientific);
  const std::string_view text(buffer.data(),
                              static_cast<std::size_t>(scientific.ptr - buffer.data()));
  const std::size_t mark = text.find('e');
  int exponent = 0;
  const char* digits = text.data() + mark + (text[mark + 1] == '+' ? 2 : 1);
  std::from_chars(digits, text.data() + text.size(), exponent);
  if (exponent < -4 || exponent >= 16) return std::string(text);

  const auto fixed = std::to_chars(buffer.begin(), buffer.end(), value, std::chars_format::fixed);
  std::string result(buffer.data(), fixed.ptr);
  if (result.find('.') == result.npos) result += ".0";
  return result;
}

std::string environment_text(const Value& value) {
  if (value.is_null()) return "";
  const std::string* text = value.text();
  return text != nullptr ? *text : to_json(value);
}

std::string python_upper(std::string_view text) {
  std::string out;
  for_each_character(text, [&](char32_t code, std::string_view bytes) {
    if (!decode_utf8(bytes).valid) {
      out += bytes;
      return;
    }
    for (const char32_t mapped : upper(code)) append_utf8(out, mapped);
  });
  return out;
}

}  // namespace opt_ml
