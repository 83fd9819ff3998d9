// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/job/failure/process_record.h"

#include "entrypoint/job/failure/line_kinds.h"
#include "entrypoint/job/failure/traceback_collector.h"
#include "entrypoint/report/told_steps.h"
#include "opt_ml_layout/outputs.h"

namespace entrypoint {
namespace {

constexpr std::string_view kTelling[] = {"NCCL WARN",
                                         "NCCL ERROR",
                                         "CUDA error",
                                         "terminate called",
                                         "what():  ",
                                         "Fatal Python error",
                                         "Segmentation fault",
                                         "Bus error",
                                         "Killed",
                                         "out of memory",
                                         "No space left on device"};

bool holds_traceback(std::string_view text) {
  return text.find(kTracebackHeader) != std::string_view::npos || text.ends_with('}');
}

/// "╰─> [75 lines of output]": a program's own words follow.
bool begins_quote(std::string_view text) {
  return text.find("lines of output]") != std::string_view::npos;
}

}  // namespace

bool is_telling(std::string_view text) { return holds_one_of(text, kTelling); }

void ProcessRecord::add(const Line& line) {
  const auto index = static_cast<std::size_t>(line.stream);
  const std::string_view text = opt_ml::utf8_prefix(line.text, kLongestLine);
  TracebackCollector& collector = tracebacks_[index];
  const long completed = collector.completed();
  if (!collector.is_reading()) block_order_[index] = line.order;
  // A structured log has a whole traceback in one line.
  const bool is_tracebacks = collector.add(holds_traceback(line.text) ? line.text : text);
  if (collector.completed() != completed) {
    since_ = {.stream = line.stream};
    telling_.clear();
    errors_.clear();
    words_[index].clear();
    others_[index].clear();
    traceback_order_ = block_order_[index];
  }
  if (line.is_launchers) return;
  if (is_telling(text)) push_bounded(telling_, text, kErrors);
  if (is_tracebacks) return;
  if (begins_quote(text)) {
    quotes_ = true;
    errors_.clear();
  }
  const LineKind kind = kind_of_line(text);
  if (kind == LineKind::kError) {
    ++since_.errors;
    words_since_error_ = 0;
    const bool has_cause = quotes_ && errors_.size() == kErrors;
    if (!has_cause) push_bounded(errors_, text, kErrors);
  }
  if (kind == LineKind::kWords) {
    const bool is_same = line.stream == since_.stream;
    ++(is_same ? since_.words : since_.other_words);
    if (!is_same) since_.other_bytes += line.text.size();
    if (line.stream == StreamKind::kErr) ++words_since_error_;
    since_.trained = since_.trained || report::read_told_line(text).loss.has_value();
  }
  const bool is_own = kind == LineKind::kWords || kind == LineKind::kError;
  push_bounded(is_own ? words_[index] : others_[index], text, kWords);
}

const Traceback* ProcessRecord::traceback() const {
  for (const StreamKind stream : {StreamKind::kErr, StreamKind::kOut}) {
    const TracebackCollector& collector = tracebacks_[static_cast<std::size_t>(stream)];
    if (!collector.empty()) return &collector.last();
  }
  return nullptr;
}

const Traceback* ProcessRecord::report() const {
  for (const StreamKind stream : {StreamKind::kErr, StreamKind::kOut}) {
    const Traceback& report = tracebacks_[static_cast<std::size_t>(stream)].report();
    if (!report.lines.empty()) return &report;
  }
  return nullptr;
}

std::deque<std::string> ProcessRecord::last_words() const {
  for (const auto& lines : {words_, others_}) {
    const auto& [out, err] = lines;
    if (!err.empty()) return err;
    if (!out.empty()) return out;
  }
  return {};
}

}  // namespace entrypoint
