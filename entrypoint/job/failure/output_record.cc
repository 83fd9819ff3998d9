// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/job/failure/output_record.h"

#include <algorithm>
#include <optional>

#include "entrypoint/job/failure/line_kinds.h"
#include "opt_ml_layout/outputs.h"
#include "opt_ml_layout/utf8.h"
#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

// torch's excepthook writes a rank's uncaught exception as "[rank3]: …".
std::optional<int> torch_rank(std::string_view line) {
  constexpr std::string_view kMark = "[rank";
  if (!line.starts_with(kMark)) return std::nullopt;
  const std::size_t end = line.find("]:");
  const auto rank = smp::leading_number<int>(line.substr(kMark.size()));
  const bool is_whole = rank && end == kMark.size() + std::to_string(*rank).size();
  return is_whole && *rank >= 0 ? rank : std::nullopt;
}

bool is_mpiruns(std::string_view text) {
  constexpr std::string_view kWords[] = {"ORTE", "PRTE", "mpirun", "prterun", "MPI_ABORT", "BTL"};
  return holds_one_of(text, kWords);
}

constexpr char kEscape = '\x1b';
constexpr char kBell = '\x07';

bool is_shown(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return c == '\t' || c == '\n' || (byte >= 0x20 && byte != 0x7F);
}

bool is_plain_ascii(char c) { return is_shown(c) && static_cast<unsigned char>(c) < 0x80; }

// The length of the sequence that starts with the escape at the front (ECMA-48): CSI up to its
// final byte, OSC up to its terminator, else two bytes. One that is cut off counts as whole.
std::size_t sequence_length(std::string_view text) {
  if (text.size() < 2) return text.size();
  if (text[1] == '[') {
    const auto* const end = std::find_if(text.begin() + 2, text.end(),
                                         [](char c) { return c >= '\x40' && c <= '\x7e'; });
    return end == text.end() ? text.size() : static_cast<std::size_t>(end - text.begin()) + 1;
  }
  if (text[1] == ']') {
    const std::size_t bell = text.find(kBell);
    const std::size_t string_end = text.find("\x1b\\", 2);
    if (bell != std::string_view::npos && bell < string_end) return bell + 1;
    return string_end == std::string_view::npos ? text.size() : string_end + 2;
  }
  return 2;
}

}  // namespace

void OutputRecord::begin_again() {
  streams_ = {};
  processes_.clear();
  telling_.clear();
  reports_.begin_again();
}

void OutputRecord::add(StreamKind stream, const RankTag* tag, std::string_view piece) {
  auto& all = streams_[static_cast<std::size_t>(stream)].unfinished;
  if (all.size() >= kRanks) all.clear();  // no job has as many; somebody prints tags
  Unfinished& unfinished = all[tag != nullptr ? tag->text() : std::string{}];
  if (unfinished.taken_back && piece != "\n") unfinished = {};
  const char end = piece.empty() ? '\0' : piece.back();
  const bool ends = end == '\n' || end == '\r';
  if (ends) piece.remove_suffix(1);
  const std::size_t room = kLongestRead - std::min(kLongestRead, unfinished.text.size());
  unfinished.text.append(piece.substr(0, room));
  unfinished.taken_back = end == '\r';
  if (end != '\n') return;
  add_line(stream, tag, unfinished.text);
  unfinished = {};
}

void OutputRecord::add_line(StreamKind stream, const RankTag* tag, std::string_view bytes) {
  ++lines_seen_;
  const std::string whole = plain_text(bytes);
  if (whole.empty()) return;
  const std::string_view text = opt_ml::utf8_prefix(whole, kLongestLine);
  const std::string line = (tag != nullptr ? tag->text() : std::string{}).append(text);
  Stream& record = streams_[static_cast<std::size_t>(stream)];
  push_bounded(record.lines, line, stream == StreamKind::kErr ? kErrLines : kOutLines);
  if (is_telling(text) || (tag == nullptr && is_mpiruns(text))) {
    push_bounded(telling_, line, kTellingLines);
  }
  int rank = tag != nullptr ? tag->rank : torch_rank(text).value_or(kNoRank);
  if (processes_.size() >= kRanks && !processes_.contains(rank)) rank = kNoRank;
  if (watcher_) watcher_(rank, text);
  const bool is_out = tag != nullptr ? tag->stream == "stdout" : stream == StreamKind::kOut;
  const bool is_launchers = rank == kNoRank && reports_.add(text);
  processes_[rank].add({.stream = is_out ? StreamKind::kOut : StreamKind::kErr,
                        .text = whole,
                        .order = lines_seen_,
                        .is_launchers = is_launchers});
}

std::string plain_text(std::string_view text) {
  if (std::ranges::all_of(text, is_plain_ascii)) return std::string(text);
  std::string result;
  while (!text.empty()) {
    if (text.front() == kEscape) {
      text.remove_prefix(sequence_length(text));
      continue;
    }
    const opt_ml::Utf8Character next = opt_ml::decode_utf8(text);
    if (!next.valid) {
      result += "\xEF\xBF\xBD";
    } else if (is_shown(text.front())) {
      result += text.substr(0, next.length);
    }
    text.remove_prefix(next.length);
  }
  return result;
}

}  // namespace entrypoint
