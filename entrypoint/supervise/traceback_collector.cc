// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/supervise/traceback_collector.h"

#include <algorithm>
#include <cctype>

namespace entrypoint::supervise {
namespace {

constexpr std::string_view kHeader = "Traceback (most recent call last):";
constexpr std::string_view kGroup = "+ Exception Group ";
constexpr std::string_view kTorchs = "[rank";  // "[rank3]: "
constexpr std::size_t kLongestText = 20;       // lines of an exception

bool is_indented(std::string_view line) {
  return line.empty() || line.front() == ' ' || line.front() == '\t';
}

// What a parent says of a child that failed: the cause came before.
bool reports_another_process(std::string_view exception) {
  constexpr std::string_view kReports[] = {"torch.distributed.elastic.multiprocessing.",
                                           "subprocess.CalledProcessError"};
  return std::ranges::any_of(
      kReports, [exception](std::string_view report) { return exception.starts_with(report); });
}

bool chains(std::string_view line) {
  constexpr std::string_view kLinks[] = {
      "The above exception was the direct cause of the following exception:",
      "During handling of the above exception, another exception occurred:"};
  return holds_one_of(line, kLinks);
}

}  // namespace

bool holds_one_of(std::string_view text, std::span<const std::string_view> words) {
  return std::ranges::any_of(
      words, [text](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

bool names_exception(std::string_view line) {
  if (line.empty() ||
      (std::isalpha(static_cast<unsigned char>(line.front())) == 0 && line.front() != '_')) {
    return false;
  }
  for (const char c : line) {
    if (c == ':') return true;
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_' && c != '.') return false;
  }
  return true;
}

bool blames_another_rank(std::string_view exception) {
  constexpr std::string_view kNames[] = {"SMPConnectionError", "SMPCommTimeoutError",
                                         "DistNetworkError", "DistStoreError"};
  // What torch's backends say; the rank that is meant has failed in its own way.
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
  if (chained_ && !last_.exception().empty()) {
    causes = last_.causes;
    if (causes.size() < kMostCauses) causes.emplace_back(last_.exception());
  }
  chained_ = false;
  open_ = {};
  open_.causes = std::move(causes);
  place_ = Place::kFrames;
  prefix_ = prefix;
  // "[rank1]: Original Traceback (most…", of a DataLoader's worker, goes on with "[rank1]: ".
  if (prefix.starts_with(kTorchs)) prefix_ = prefix.substr(0, prefix.find(' ') + 1);
  // "  + Exception Group Traceback (most…" goes on with "  | ".
  if (prefix.ends_with(kGroup)) {
    prefix_ = std::string(prefix.substr(0, prefix.size() - kGroup.size())) + "| ";
  }
  keep(kHeader);
}

void TracebackCollector::keep(std::string_view line) {
  if (open_.lines.size() >= kLongest) {
    // The start names the script, the end names the cause; drop from the middle.
    open_.lines.erase(open_.lines.begin() + kLongest / 2);
  }
  open_.lines.emplace_back(line);
}

void TracebackCollector::complete() {
  if (quoted_) {
    append_text(open_.exception());
  } else if (last_.lines.empty() || !reports_another_process(open_.exception())) {
    last_ = std::move(open_);
  }
  open_ = {};
}

void TracebackCollector::append_text(std::string_view line) {
  last_.lines.emplace_back(line);
  ++last_.text_lines;
}

void TracebackCollector::continue_text(std::string_view line, bool has_prefix) {
  chained_ = chained_ || chains(line);
  if (chained_ || quoted_) return;
  const bool belongs =
      prefix_.empty() ? is_indented(line) : has_prefix && prefix_.starts_with(kTorchs);
  if (belongs && last_.text_lines < kLongestText) {
    append_text(line);
  } else {
    place_ = Place::kOutside;
  }
}

void TracebackCollector::add(std::string_view line) {
  const std::size_t header = line.find(kHeader);
  if (header != std::string_view::npos) {
    begin(line.substr(0, header));
    return;
  }
  if (place_ == Place::kOutside) return;
  const bool has_prefix = !prefix_.empty() && line.starts_with(prefix_);
  if (has_prefix) line.remove_prefix(prefix_.size());
  if (place_ == Place::kText) {
    continue_text(line, has_prefix);
    return;
  }
  if (is_indented(line)) {
    keep(line);
    return;
  }
  // Something else spoke in between: the block stays, without an exception.
  const bool ends_well = names_exception(line);
  if (ends_well) {
    keep(line);
    open_.text_lines = 1;
  }
  complete();
  place_ = ends_well ? Place::kText : Place::kOutside;
}

}  // namespace entrypoint::supervise
