// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/supervise/traceback_collector.h"

#include <cctype>

namespace entrypoint::supervise {
namespace {

bool is_indented(std::string_view line) {
  return line.empty() || line.front() == ' ' || line.front() == '\t';
}

// An exception line names a type: "ValueError: boom", "torch.OutOfMemoryError: …", "KeyError".
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

}  // namespace

std::string_view Traceback::exception() const {
  if (lines.empty()) return {};
  const std::string& line = lines.back();
  return is_indented(line) || !names_exception(line) ? std::string_view{} : line;
}

void TracebackCollector::keep(std::string_view line) {
  if (open_.lines.size() >= kLongest) {
    // The start names the script, the end names the cause; drop from the middle.
    open_.lines.erase(open_.lines.begin() + kLongest / 2);
  }
  open_.lines.emplace_back(line);
}

void TracebackCollector::add(std::string_view line) {
  if (line.find("Traceback (most recent call last):") != std::string_view::npos) {
    open_.lines.clear();
    inside_ = true;
    keep(line);
    return;
  }
  if (!inside_) return;
  if (!is_indented(line)) {
    inside_ = false;
    // Something else spoke in between: the block stays, without an exception line.
    if (names_exception(line)) keep(line);
    last_ = std::move(open_);
    open_ = {};
    return;
  }
  keep(line);
}

}  // namespace entrypoint::supervise
