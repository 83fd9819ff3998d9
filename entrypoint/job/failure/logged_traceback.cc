// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/job/failure/logged_traceback.h"

#include <charconv>
#include <optional>
#include <span>
#include <utility>

#include "opt_ml_layout/json_document.h"
#include "opt_ml_layout/utf8.h"
#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

using opt_ml::Value;

/// The character that ends the quoted text in which `at` lies: what opened it stands behind the
/// begin of the line, a blank or a bracket, an equals sign or a colon.
char quote_around(std::string_view line, std::size_t at) {
  for (std::size_t i = at; i-- > 0;) {
    if (line[i] != '"' && line[i] != '\'') continue;
    if (i == 0 || std::string_view(" \t=:,([{").find(line[i - 1]) != std::string_view::npos) {
      return line[i];
    }
  }
  return '\0';
}

/// Takes the four digits behind "\u" off.
void append_code_point(std::string& result, std::string_view& text) {
  unsigned value = 0;
  constexpr std::size_t kDigits = 4;
  const std::string_view digits = text.substr(0, kDigits);
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, /*base=*/16);
  if (error != std::errc{} || digits.size() < kDigits || value == 0) return;
  text.remove_prefix(kDigits);
  opt_ml::append_utf8(result, value);
}

/// Up to the closing quote, or the end of a line that was cut off.
std::string unescaped(std::string_view text, char quote) {
  std::string result;
  while (!text.empty() && text.front() != quote) {
    const char c = text.front();
    text.remove_prefix(1);
    if (c != '\\' || text.empty()) {
      result += c;
      continue;
    }
    const char escaped = text.front();
    text.remove_prefix(1);
    switch (escaped) {
      case 'n':
        result += '\n';
        break;
      case 't':
        result += '\t';
        break;
      case 'r':
        break;
      case 'u':
        append_code_point(result, text);
        break;
      default:
        result += escaped;
    }
  }
  return result;
}

/// The keys by which loggers call an exception's type and text.
constexpr std::pair<const char*, const char*> kPairs[] = {{"exc_type", "exc_value"},
                                                          {"exc_type", "exc_message"},
                                                          {"type", "value"},
                                                          {"type", "message"},
                                                          {"exception.type", "exception.message"},
                                                          {"error.type", "error.message"},
                                                          {"kind", "message"},
                                                          {"class", "message"}};

std::optional<std::string> exception_in(const Value& value, bool below_error);

std::optional<std::string> exception_of(const Value& object, bool below_error) {
  for (const auto& [type, text] : kPairs) {
    const std::string_view key = type;
    // "type" and "message" are common words: they count within what is called an error alone.
    if (!below_error && !key.starts_with("exc") && !key.starts_with("error.")) continue;
    const Value* const name = object.find(type);
    const Value* const words = object.find(text);
    if (name == nullptr || name->text() == nullptr || words == nullptr) continue;
    if (words->text() == nullptr || name->text()->find(' ') != std::string::npos) continue;
    return *name->text() + ": " + *words->text();
  }
  for (const Value::Member& member : *object.object()) {
    const bool is_error =
        member.key.find("exc") != std::string::npos || member.key.find("err") != std::string::npos;
    if (auto found = exception_in(member.value, below_error || is_error)) return found;
  }
  return std::nullopt;
}

std::optional<std::string> exception_in(const Value& value, bool below_error) {
  if (value.object() != nullptr) return exception_of(value, below_error);
  if (value.list() == nullptr) return std::nullopt;
  std::optional<std::string> last;  // of a chain the last one is what ended it
  for (const Value& one : *value.list()) {
    if (auto found = exception_in(one, below_error)) last = std::move(found);
  }
  return last;
}

}  // namespace

std::vector<std::string> logged_traceback(std::string_view line) {
  const std::size_t header = line.find(kTracebackHeader);
  if (header == std::string_view::npos) {
    const std::size_t brace = line.find('{');
    if (brace == std::string_view::npos || !line.ends_with('}')) return {};
    const auto value = opt_ml::try_parse_json(line.substr(brace));
    const auto exception = value ? exception_in(*value, false) : std::nullopt;
    if (!exception) return {};
    return {std::string(kTracebackHeader) + ":", *exception};
  }
  const char quote = quote_around(line, header);
  if (quote == '\0' || line.find("\\n", header) == std::string_view::npos) return {};
  std::vector<std::string> lines;
  for (std::string& one : smp::split(unescaped(line.substr(header), quote), '\n')) {
    if (!one.empty()) lines.push_back(std::move(one));
  }
  return lines;
}

}  // namespace entrypoint
