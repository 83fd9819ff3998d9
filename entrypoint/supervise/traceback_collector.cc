// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/supervise/traceback_collector.h"

#include <algorithm>
#include <cctype>

namespace entrypoint::supervise {
namespace {

constexpr std::string_view kHeader = "Traceback (most recent call last):";
constexpr std::string_view kGroup = "+ Exception Group ";

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

}  // namespace

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

std::string_view Traceback::exception() const {
  if (lines.empty()) return {};
  const std::string& line = lines.back();
  return is_indented(line) || !names_exception(line) ? std::string_view{} : line;
}

void TracebackCollector::begin(std::string_view prefix) {
  open_.lines.clear();
  inside_ = true;
  prefix_ = prefix;
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

void TracebackCollector::finish() {
  inside_ = false;
  if (last_.lines.empty() || !reports_another_process(open_.exception())) last_ = open_;
  open_.lines.clear();
}

void TracebackCollector::add(std::string_view line) {
  const std::size_t header = line.find(kHeader);
  if (header != std::string_view::npos) {
    begin(line.substr(0, header));
    return;
  }
  if (!inside_) return;
  if (!prefix_.empty() && line.starts_with(prefix_)) line.remove_prefix(prefix_.size());
  if (is_indented(line)) {
    keep(line);
    return;
  }
  // Something else spoke in between: the block stays, without an exception line.
  if (names_exception(line)) keep(line);
  finish();
}

}  // namespace entrypoint::supervise
