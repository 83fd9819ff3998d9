// SPDX-License-Identifier: Apache-2.0
#include "opt_ml_layout/json_document.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

#include "opt_ml_layout/utf8.h"

namespace opt_ml {
namespace {

constexpr int kDeepestNesting = 1000;
constexpr std::size_t kMostDigits = 4300;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_surrogate(char32_t code) { return code >= 0xD800 && code <= 0xDFFF; }

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Value parse_document() {
    skip_blanks();
    Value value = parse_value(0);
    skip_blanks();
    if (at_ < text_.size()) fail("the end of the text");
    return value;
  }

 private:
  [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  [[nodiscard]] bool at_end() const { return at_ >= text_.size(); }

  void skip_blanks() {
    while (!at_end() && std::strchr(" \t\n\r", text_[at_]) != nullptr) ++at_;
  }

  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  [[nodiscard]] std::string found() const {
    if (at_end()) return "the end of the text";
    const Utf8Character next = decode_utf8(text_.substr(at_));
    if (!next.valid) return fmt::format("byte 0x{:02X}, which is not UTF-8", unsigned{next.code});
    if (next.code == 0xFEFF) return "a byte order mark";
    if (!is_printable(next.code)) return fmt::format("character U+{:04X}", unsigned{next.code});
    return fmt::format("'{}'", text_.substr(at_, next.length));
  }

  [[noreturn]] void fail_because(std::string_view reason) const {
    int line = 1;
    int column = 1;
    for (std::size_t i = 0; i < at_;) {
      const bool ends_line = text_[i] == '\n';
      line += ends_line ? 1 : 0;
      column = ends_line ? 1 : column + 1;
      i += decode_utf8(text_.substr(i)).length;
    }
    throw JsonSyntaxError("line {}, column {}: {}", line, column, reason);
  }

  [[noreturn]] void fail(std::string_view expected) const {
    fail_because(fmt::format("found {}, expected {}", found(), expected));
  }

  Value parse_value(int depth) {
    if (depth > kDeepestNesting) {
      fail_because(fmt::format("nested deeper than {} levels", kDeepestNesting));
    }
    const char c = peek();
    if (c == '{') return parse_object(depth);
    if (c == '[') return parse_list(depth);
    if (c == '"') return parse_text();
    if (take("null")) return {};
    if (take("true")) return true;
    if (take("false")) return false;
    if (take("NaN")) return std::numeric_limits<double>::quiet_NaN();
    if (take("Infinity")) return std::numeric_limits<double>::infinity();
    if (take("-Infinity")) return -std::numeric_limits<double>::infinity();
    if (c == '-' || is_digit(c)) return parse_number();
    fail("a JSON value");
  }

  Value parse_object(int depth) {
    Value object = Value::Object{};
    ++at_;
    skip_blanks();
    if (take("}")) return object;
    while (true) {
      if (peek() != '"') fail("a key in double quotes");
      std::string key = parse_text();
      skip_blanks();
      if (!take(":")) fail("':' after the key");
      skip_blanks();
      object.set(std::move(key), parse_value(depth + 1));
      skip_blanks();
      if (take("}")) return object;
      if (!take(",")) fail("',' or '}' after the value");
      skip_blanks();
    }
  }

  Value parse_list(int depth) {
    Value::List list;
    ++at_;
    skip_blanks();
    if (take("]")) return list;
    while (true) {
      list.push_back(parse_value(depth + 1));
      skip_blanks();
      if (take("]")) return list;
      if (!take(",")) fail("',' or ']' after the value");
      skip_blanks();
    }
  }

  void skip_digits() {
    while (!at_end() && is_digit(text_[at_])) ++at_;
  }

  Value parse_number() {
    const std::size_t start = at_;
    if (peek() == '-') ++at_;
    if (!is_digit(peek())) fail("a digit");
    if (peek() == '0') {
      ++at_;
    } else {
      skip_digits();
    }
    const std::size_t integer_end = at_;
    // As Python does: a dot or an e without digits after it is not part of the number.
    if (peek() == '.' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1])) {
      ++at_;
      skip_digits();
    }
    if (peek() == 'e' || peek() == 'E') {
      const std::size_t mark = at_++;
      if (peek() == '-' || peek() == '+') ++at_;
      if (is_digit(peek())) {
        skip_digits();
      } else {
        at_ = mark;
      }
    }
    const std::string_view token = text_.substr(start, at_ - start);
    if (at_ > integer_end) return to_double(token);
    if (token.size() > kMostDigits) {
      at_ = start;
      fail_because(fmt::format("integer of more than {} digits", kMostDigits));
    }
    return Value::Integer{token == "-0" ? "0" : std::string(token)};
  }

  static double to_double(std::string_view token) {
    double value = 0;
    const auto [rest, error] = std::from_chars(token.data(), token.data() + token.size(), value);
    if (error != std::errc::result_out_of_range) return value;
    // from_chars leaves the value alone here; strtod knows on which side the number is out.
    return std::strtod(std::string(token).c_str(), nullptr);
  }

  unsigned parse_hex4() {
    unsigned code = 0;
    const std::string_view digits = text_.substr(at_, 4);
    const auto [rest, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (digits.size() < 4 || rest != digits.data() + 4) fail("four hexadecimal digits after \\u");
    at_ += 4;
    return code;
  }

  char32_t parse_unicode_escape() {
    const char32_t code = parse_hex4();
    if (code < 0xD800 || code > 0xDBFF || text_.substr(at_, 2) != "\\u") return code;
    const std::size_t mark = at_;
    at_ += 2;
    const char32_t low = parse_hex4();
    if (low >= 0xDC00 && low <= 0xDFFF) return 0x10000 + ((code - 0xD800) << 10U) + (low - 0xDC00);
    at_ = mark;  // two characters after all; the second one is read again
    return code;
  }

  std::string parse_text() {
    std::string text;
    const std::size_t start = at_++;
    while (true) {
      if (at_end()) {
        at_ = start;
        fail_because("text in double quotes that does not end");
      }
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        return text;
      }
      if (c == '\\') {
        ++at_;
        parse_escape(text);
        continue;
      }
      const Utf8Character next = decode_utf8(text_.substr(at_));
      if (!next.valid || is_surrogate(next.code) || next.code < 0x20) {
        fail("a character of the text (control characters are written \\n, \\t, \\u0000)");
      }
      text += text_.substr(at_, next.length);
      at_ += next.length;
    }
  }

  void parse_escape(std::string& text) {
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    const std::size_t which = at_end() ? kNames.npos : kNames.find(text_[at_]);
    if (which != kNames.npos) {
      ++at_;
      text += kMeanings[which];
    } else if (take("u")) {
      append_utf8(text, parse_unicode_escape());
    } else {
      fail("one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u after a backslash");
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

Value parse_json(std::string_view text) { return Parser(text).parse_document(); }

std::optional<Value> try_parse_json(std::string_view text) {
  try {
    return parse_json(text);
  } catch (const JsonSyntaxError&) {
    return std::nullopt;
  }
}

std::optional<Value> read_json_file(const std::filesystem::path& file) {
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  if (!stream) {
    if (errno == ENOENT) return std::nullopt;
    throw smp::HostError("{}: cannot be opened: {}", file.string(), std::strerror(errno));
  }
  if (std::filesystem::is_directory(file)) {
    throw smp::HostError("{}: is a folder, expected a JSON file", file.string());
  }
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (stream.bad()) throw smp::HostError("{}: cannot be read", file.string());
  try {
    return parse_json(text);
  } catch (const JsonSyntaxError& error) {
    throw smp::ConfigError("{}: not valid JSON: {}; correct the file", file.string(), error.what());
  }
}

}  // namespace opt_ml
