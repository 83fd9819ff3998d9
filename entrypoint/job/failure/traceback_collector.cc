// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/job/failure/traceback_collector.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>
#include <span>
#include <utility>

#include "entrypoint/job/failure/line_kinds.h"
#include "opt_ml_layout/json_document.h"
#include "opt_ml_layout/utf8.h"
#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

constexpr std::string_view kGroup = "+ Exception Group ";
constexpr std::string_view kTorchs = "[rank";         // "[rank3]: "
constexpr std::string_view kTables = "traceback : ";  // torchrun's, of what a worker recorded
constexpr std::size_t kLongestText = 20;              // lines of an exception
constexpr int kMostStrangers = 30;  // then a block without an exception is given up

bool is_indented(std::string_view line) {
  return line.empty() || line.front() == ' ' || line.front() == '\t';
}

bool starts_with_one_of(std::string_view line, std::span<const std::string_view> starts) {
  return std::ranges::any_of(starts, [line](auto start) { return line.starts_with(start); });
}

/// loguru marks the frame that caught, notebooks the line that failed.
bool is_marked_frame(std::string_view line) {
  constexpr std::string_view kStarts[] = {"> File ", "File ", "Cell In[", "----> ", "---> "};
  return starts_with_one_of(line, kStarts);
}

constexpr std::string_view kEdges[] = {"\u2502", "\u256d", "\u2570", "|", "+-"};

/// The text between the edges of a box.
std::string_view without_edges(std::string_view line) {
  for (const std::string_view edge : {kEdges[0], kEdges[3]}) {
    if (line.starts_with(edge)) line.remove_prefix(edge.size());
    if (line.ends_with(edge)) line.remove_suffix(edge.size());
  }
  return line.substr(0, line.find_last_not_of(' ') + 1);
}

bool chains(std::string_view line) {
  constexpr std::string_view kLinks[] = {
      "The above exception was the direct cause of the following exception:",
      "During handling of the above exception, another exception occurred:"};
  return holds_one_of(line, kLinks);
}

/// A clock's prefix differs in digits.
bool repeats(std::string_view line, std::string_view prefix) {
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  return !prefix.empty() && line.size() >= prefix.size() &&
         std::equal(prefix.begin(), prefix.end(), line.begin(),
                    [&](char a, char b) { return a == b || (is_digit(a) && is_digit(b)); });
}

/// The name of a type whatever stands before it: others may have spoken in between.
bool surely_names_exception(std::string_view line) {
  constexpr std::string_view kEnds[] = {"Error", "Exception", "Interrupt", "Exit", "Warning"};
  const std::string_view name = line.substr(0, line.find(':'));
  return names_exception(line) &&
         (name.find('.') != std::string_view::npos ||
          std::ranges::any_of(kEnds, [name](auto end) { return name.ends_with(end); }));
}

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

bool names_exception(std::string_view line) {
  if (line.empty() ||
      (std::isalpha(static_cast<unsigned char>(line.front())) == 0 && line.front() != '_')) {
    return false;
  }
  constexpr std::array<std::string_view, 8> kLevels = {"INFO",  "DEBUG", "WARNING",  "WARN",
                                                       "ERROR", "FATAL", "CRITICAL", "TRACE"};
  if (std::ranges::find(kLevels, line.substr(0, line.find(':'))) != kLevels.end()) return false;
  for (const char c : line) {
    if (c == ':') return true;
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_' && c != '.') return false;
  }
  return true;
}

bool blames_another_rank(std::string_view exception) {
  constexpr std::string_view kNames[] = {"SMPConnectionError", "SMPCommTimeoutError",
                                         "DistNetworkError", "DistStoreError"};
  // Texts of torch's backends; the rank that they mean has failed in its own way.
  constexpr std::string_view kTexts[] = {
      "Connection closed by peer", "Connection reset by peer", "Connection refused", "Broken pipe",
      "Socket closed", "Timed out waiting", "remote process exited or there was a network error",
      "ncclRemoteError",
      // smddp
      "has left the group", "has ended; see its output",
      "is gone: ", "make the same calls in the same order"};
  const std::string_view name = exception.substr(0, exception.find(':'));
  if (holds_one_of(name, kNames)) return true;
  const bool quotes_a_rank = name.ends_with("SMPStepError") &&
                             exception.substr(name.size()).starts_with(": rank ") &&
                             exception.find(" failed") != std::string_view::npos;
  const bool of_torch = name == "RuntimeError" || name.ends_with("DistBackendError");
  return quotes_a_rank || (of_torch && holds_one_of(exception, kTexts));
}

std::string_view Traceback::exception() const {
  return text_lines == 0 ? std::string_view{} : lines[lines.size() - text_lines];
}

void TracebackCollector::begin(std::string_view prefix) {
  quoted_ = place_ == Place::kText && blames_another_rank(last_.exception());
  std::vector<std::string> causes;
  if (chained_ && !closed_->exception().empty()) {
    causes = closed_->causes;
    if (causes.size() < kMostCauses) causes.emplace_back(closed_->exception());
  }
  const bool is_torchs = prefix.starts_with(kTorchs);
  boxed_ = std::ranges::any_of(kEdges, [&](auto edge) { return prefix.starts_with(edge); });
  const bool is_tables = prefix.ends_with(kTables);
  if (!chained_) {
    const bool is_bare = prefix.empty() || is_torchs || boxed_ || is_tables ||
                         (!is_indented(prefix) && kind_of_line(prefix) == LineKind::kNoise);
    logged_ = after_error_ || !is_bare;
  }
  chained_ = false;
  strangers_ = 0;
  open_ = {};
  open_.causes = std::move(causes);
  place_ = Place::kFrames;
  prefix_ = boxed_ ? std::string_view() : prefix;
  // "[rank1]: Original Traceback (most…", of a DataLoader's worker, goes on with "[rank1]: ".
  if (is_torchs) prefix_ = prefix.substr(0, prefix.find(' ') + 1);
  if (is_tables) prefix_ = prefix.substr(0, prefix.find_first_not_of(' '));
  // "  + Exception Group Traceback (most…" goes on with "  | ".
  if (prefix.ends_with(kGroup)) {
    prefix_ = std::string(prefix.substr(0, prefix.size() - kGroup.size())) + "| ";
    boxed_ = false;
  }
  keep(std::string(kTracebackHeader) + ":");
}

void TracebackCollector::keep(std::string_view line) {
  if (open_.lines.size() >= kLongest) {
    // The start names the script, the end names the cause; drop from the middle.
    open_.lines.erase(open_.lines.begin() + kLongest / 2);
  }
  open_.lines.emplace_back(line);
  constexpr std::size_t kOutermost = 2;
  if (open_.lines.size() == kOutermost) {
    constexpr std::string_view kModules[] = {"in <module>", "<frozen runpy>"};
    open_.looks_uncaught = !logged_ && holds_one_of(line, kModules);
  }
}

void TracebackCollector::complete() {
  if (quoted_) {
    append_text(open_.exception());
  } else if (reports_another_process(open_.exception())) {
    report_ = std::move(open_);
    closed_ = &report_;
  } else {
    last_ = std::move(open_);
    closed_ = &last_;
    ++completed_;
  }
  open_ = {};
}

void TracebackCollector::append_text(std::string_view line) {
  closed_->lines.emplace_back(line);
  ++closed_->text_lines;
}

bool TracebackCollector::continue_text(std::string_view line, bool has_prefix) {
  if (chains(line)) chained_ = true;
  if (chained_ || quoted_) return true;
  const bool belongs =
      prefix_.empty() ? is_indented(line) : has_prefix && prefix_.starts_with(kTorchs);
  if (belongs && closed_->text_lines < kLongestText) {
    append_text(line);
  } else if (!belongs) {
    place_ = Place::kOutside;
  }
  return belongs;
}

bool TracebackCollector::add_logged(std::string_view line) {
  if (line.find(kTracebackHeader) == std::string_view::npos && !line.ends_with('}')) return false;
  const std::vector<std::string> lines = logged_traceback(line);
  TracebackCollector inner;
  for (const std::string& one : lines) inner.add(one);
  if (inner.last_.exception().empty()) return false;
  last_ = std::move(inner.last_);
  last_.looks_uncaught = false;
  closed_ = &last_;
  ++completed_;
  place_ = Place::kOutside;
  return true;
}

bool TracebackCollector::add_frame(std::string_view line) {
  if (boxed_ && starts_with_one_of(line, kEdges)) {
    const std::string_view content = without_edges(line);
    if (is_indented(content) && !content.empty()) keep(content);
    return true;
  }
  if (is_indented(line) || is_marked_frame(line)) {
    keep(line);
    return true;
  }
  if (strangers_ == 0 ? names_exception(line) : surely_names_exception(line)) {
    keep(line);
    open_.text_lines = 1;
    complete();
    place_ = Place::kText;
    return true;
  }
  // Somebody else spoke in between; a block that does not go on stays without an exception.
  if (++strangers_ >= kMostStrangers) {
    if (last_.lines.empty()) last_ = std::move(open_);
    open_ = {};
    place_ = Place::kOutside;
  }
  return false;
}

bool TracebackCollector::add(std::string_view line) {
  if (add_logged(line)) return true;
  const std::size_t header = line.find(kTracebackHeader);
  if (header != std::string_view::npos) {
    begin(line.substr(0, header));
    return true;
  }
  if (place_ != Place::kOutside) {
    const bool has_prefix = repeats(line, prefix_);
    if (has_prefix) line.remove_prefix(prefix_.size());
    if (place_ == Place::kText ? continue_text(line, has_prefix) : add_frame(line)) return true;
  }
  after_error_ = kind_of_line(line) == LineKind::kError;
  return false;
}

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
