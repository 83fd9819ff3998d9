// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/supervise/output_record.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace entrypoint::supervise {
namespace {

void push_bounded(std::deque<std::string>& lines, std::string_view line, std::size_t limit) {
  if (lines.size() == limit) lines.pop_front();
  lines.emplace_back(line);
}

constexpr std::string_view kTelling[] = {
    "NCCL WARN",          "NCCL ERROR", "CUDA error",   "terminate called",
    "Segmentation fault", "ORTE",       "mpirun",       "Killed",
    "MPI_ABORT",          "BTL",        "out of memory"};

bool is_telling(std::string_view line) {
  return std::ranges::any_of(kTelling, [line](std::string_view word) {
    return line.find(word) != std::string_view::npos;
  });
}

std::optional<int> number_after(std::string_view text, std::string_view mark) {
  const std::size_t position = text.find(mark);
  if (position == std::string_view::npos) return std::nullopt;
  text.remove_prefix(position + mark.size());
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} ? std::optional(value) : std::nullopt;
}

}  // namespace

void OutputRecord::add(StreamKind stream, const RankTag* tag, std::string_view piece) {
  auto& all = streams_[static_cast<std::size_t>(stream)].unfinished;
  std::string& unfinished = all[tag != nullptr ? tag->text() : std::string{}];
  const bool ends = piece.ends_with('\n') || piece.ends_with('\r');
  if (ends) piece.remove_suffix(1);
  const std::size_t room = kLongestLine - std::min(kLongestLine, unfinished.size());
  unfinished.append(piece.substr(0, room));
  if (!ends) return;
  add_line(stream, tag, unfinished);
  unfinished.clear();
}

void OutputRecord::add_line(StreamKind stream, const RankTag* tag, std::string_view text) {
  ++lines_seen_;
  if (text.empty()) return;
  const std::string line = (tag != nullptr ? tag->text() : std::string{}) + std::string(text);
  Stream& record = streams_[static_cast<std::size_t>(stream)];
  push_bounded(record.lines, line, stream == StreamKind::kErr ? kErrLines : kOutLines);
  if (is_telling(text)) push_bounded(telling_, line, kTellingLines);

  const int rank = tag != nullptr ? tag->rank : kNoRank;
  const bool is_out = tag != nullptr ? tag->stream == "stdout" : stream == StreamKind::kOut;
  note_blame(text);

  Rank& of = ranks_[rank];
  TracebackCollector& collector = is_out ? of.out : of.err;
  if (text.find("Traceback (most recent call last):") != std::string_view::npos) {
    of.order = lines_seen_;
  }
  collector.add(text);
}

void OutputRecord::note_blame(std::string_view text) {
  if (blamed_rank_ != kNoRank) return;
  // Only the first word counts: later ones name ranks that were taken down with it.
  if (const auto rank = number_after(text, "MPI_ABORT was invoked on rank ")) blamed_rank_ = *rank;
  if (const auto rank = number_after(text, "mpirun noticed that process rank ")) {
    blamed_rank_ = *rank;
  }
  if (const std::size_t name = text.find("Process name: [["); name != std::string_view::npos) {
    if (const auto rank = number_after(text.substr(name), "],")) blamed_rank_ = *rank;
  }
}

std::vector<OutputRecord::RankTraceback> OutputRecord::tracebacks() const {
  struct Found {
    RankTraceback traceback;
    bool blamed;
    long order;
  };
  std::vector<Found> found;
  for (const auto& [rank, of] : ranks_) {
    const TracebackCollector& collector = of.err.empty() ? of.out : of.err;
    if (collector.empty()) continue;
    found.push_back({.traceback = {.rank = rank, .traceback = &collector.last()},
                     .blamed = rank == blamed_rank_ && rank != kNoRank,
                     .order = of.order});
  }
  std::ranges::sort(found, [](const Found& a, const Found& b) {
    if (a.blamed != b.blamed) return a.blamed;
    return a.order < b.order;
  });
  std::vector<RankTraceback> result;
  for (const Found& item : found) result.push_back(item.traceback);
  return result;
}

}  // namespace entrypoint::supervise
