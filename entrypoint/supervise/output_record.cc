// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/supervise/output_record.h"

#include <algorithm>
#include <optional>

#include "entrypoint/supervise/plain_text.h"
#include "smp_runtime/core/number.h"

namespace entrypoint::supervise {
namespace {

void push_bounded(std::deque<std::string>& lines, std::string_view line, std::size_t limit) {
  if (lines.size() == limit) lines.pop_front();
  lines.emplace_back(line);
}

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
constexpr std::string_view kMpirunsWords[] = {"ORTE", "mpirun", "MPI_ABORT", "BTL"};

std::optional<int> number_after(std::string_view text, std::string_view mark) {
  const std::size_t position = text.find(mark);
  if (position == std::string_view::npos) return std::nullopt;
  return smp::leading_number<int>(text.substr(position + mark.size()));
}

// torch's excepthook writes a rank's uncaught exception as "[rank3]: …".
std::optional<int> torch_rank(std::string_view line) {
  constexpr std::string_view kMark = "[rank";
  if (!line.starts_with(kMark)) return std::nullopt;
  const std::size_t end = line.find("]:");
  const auto rank = number_after(line, kMark);
  const bool is_whole = rank && end == kMark.size() + std::to_string(*rank).size();
  return is_whole && *rank >= 0 ? rank : std::nullopt;
}

}  // namespace

bool OutputRecord::is_mpiruns(std::string_view telling_line) {
  return holds_one_of(telling_line, kMpirunsWords);
}

void OutputRecord::add(StreamKind stream, const RankTag* tag, std::string_view piece) {
  auto& all = streams_[static_cast<std::size_t>(stream)].unfinished;
  if (all.size() >= kRanks) all.clear();  // no job has as many; somebody prints tags
  std::string& unfinished = all[tag != nullptr ? tag->text() : std::string{}];
  const bool ends = piece.ends_with('\n') || piece.ends_with('\r');
  if (ends) piece.remove_suffix(1);
  const std::size_t room = kLongestLine - std::min(kLongestLine, unfinished.size());
  unfinished.append(piece.substr(0, room));
  if (!ends) return;
  add_line(stream, tag, unfinished);
  unfinished.clear();
}

void OutputRecord::add_line(StreamKind stream, const RankTag* tag, std::string_view bytes) {
  ++lines_seen_;
  const std::string text = plain_text(bytes);
  if (text.empty()) return;
  const std::string line = (tag != nullptr ? tag->text() : std::string{}) + text;
  Stream& record = streams_[static_cast<std::size_t>(stream)];
  push_bounded(record.lines, line, stream == StreamKind::kErr ? kErrLines : kOutLines);
  if (holds_one_of(text, kTelling) || is_mpiruns(text)) push_bounded(telling_, line, kTellingLines);
  note_blame(text);
  note_lost_host(text);

  int rank = tag != nullptr ? tag->rank : torch_rank(text).value_or(kNoRank);
  if (ranks_.size() >= kRanks && !ranks_.contains(rank)) rank = kNoRank;
  if (watcher_) watcher_(rank, text);
  const bool is_out = tag != nullptr ? tag->stream == "stdout" : stream == StreamKind::kOut;
  Rank& of = ranks_[rank];
  push_bounded(of.last_words[is_out ? 0 : 1], line, kLastWords);
  if (text.find("Traceback (most recent call last):") != std::string::npos) of.order = lines_seen_;
  (is_out ? of.out : of.err).add(text);
}

std::vector<std::string> OutputRecord::last_words(int rank) const {
  const auto found = ranks_.find(rank);
  if (found == ranks_.end()) return {};
  const auto& [out, err] = found->second.last_words;
  const std::deque<std::string>& words = err.empty() ? out : err;
  return {words.begin(), words.end()};
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

/// mpirun says what happened in one line and names the hosts in others:
///     ORTE has lost communication with a remote daemon.
///       HNP daemon   : [[46031,0],0] on node algo-1
///       Remote daemon: [[46031,0],1] on node algo-2
void OutputRecord::note_lost_host(std::string_view text) {
  if (text.find("ORTE has lost communication with a remote daemon") != std::string_view::npos) {
    daemon_lost_ = true;
  }
  if (!daemon_lost_ || !lost_host_.empty()) return;
  constexpr std::string_view kNode = " on node ";
  const std::size_t node = text.find(kNode);
  if (text.find("Remote daemon: [[") == std::string_view::npos || node == std::string_view::npos) {
    return;
  }
  text.remove_prefix(node + kNode.size());
  lost_host_ = text.substr(0, text.find_first_of(" \t"));
}

std::vector<OutputRecord::RankTraceback> OutputRecord::tracebacks() const {
  struct Found {
    RankTraceback traceback;
    bool consequence;
    bool blamed;
    long order;
  };
  std::vector<Found> found;
  for (const auto& [rank, of] : ranks_) {
    const TracebackCollector& collector = of.err.empty() ? of.out : of.err;
    if (collector.empty()) continue;
    found.push_back({.traceback = {.rank = rank, .traceback = &collector.last()},
                     .consequence = blames_another_rank(collector.last().exception()),
                     .blamed = rank == blamed_rank_ && rank != kNoRank,
                     .order = of.order});
  }
  std::ranges::sort(found, [](const Found& a, const Found& b) {
    if (a.consequence != b.consequence) return b.consequence;
    if (a.blamed != b.blamed) return a.blamed;
    return a.order < b.order;
  });
  std::vector<RankTraceback> result;
  for (const Found& item : found) result.push_back(item.traceback);
  return result;
}

}  // namespace entrypoint::supervise
