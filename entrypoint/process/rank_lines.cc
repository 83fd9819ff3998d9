// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/process/rank_lines.h"

#include <algorithm>
#include <string>

namespace entrypoint {
namespace {

// The first tag in `text`, and where it is; without one, the end of the text.
std::optional<RankTag> find_tag(std::string_view text, TagEnd end, std::size_t& position) {
  for (position = text.find('['); position != std::string_view::npos;
       position = text.find('[', position + 1)) {
    if (auto tag = parse_rank_tag(text.substr(position), end)) return tag;
  }
  position = text.size();
  return std::nullopt;
}

bool ends_line(std::string_view piece) { return piece.ends_with('\n') || piece.ends_with('\r'); }

/// The rule over words of mpirun's own, where it comes behind a piece of a rank's line; else empty.
/// mpirun writes it as soon as a rank has failed, when the rest of that rank's last line may still
/// be on its way from another host.
std::string_view rule_within(std::string_view piece) {
  static const std::string rule = std::string(74, '-') + "\n";  // Open MPI's show_help
  if (!piece.ends_with(rule)) return {};
  const std::string_view before = piece.substr(0, piece.size() - rule.size());
  // A rule that follows a tag, or is longer, is the rank's.
  const bool is_its_own =
      before.empty() || before.ends_with(">:") || before.ends_with(">: ") || before.ends_with('-');
  return is_its_own ? std::string_view() : piece.substr(before.size());
}

}  // namespace

LineStream& RankLines::lines_of(const std::optional<RankTag>& tag) {
  const std::string key = tag ? tag->text() : std::string{};
  const auto found = sources_.find(key);
  if (found != sources_.end()) return found->second.lines;
  const LineStream::Emit emit = [this, tag](std::string_view piece, bool starts_line) {
    emit_(tag ? &*tag : nullptr, piece, starts_line);
  };
  return sources_.emplace(key, Source{tag, LineStream(emit)}).first->second.lines;
}

void RankLines::append(std::string_view piece, LineStream::Clock::time_point now) {
  const std::string_view rule = rule_within(piece);
  piece.remove_suffix(rule.size());
  const bool is_whole = ends_line(piece);
  while (!piece.empty()) {
    std::size_t end = 0;
    const auto next = find_tag(piece, end_, end);
    if (end > 0) lines_of(speaker_).append(piece.substr(0, end), now);
    piece.remove_prefix(end);
    if (!next) continue;
    piece.remove_prefix(next->length);
    speaker_ = next;
  }
  if (!rule.empty()) {
    speaker_.reset();
    lines_of(speaker_).append(rule, now);
  } else if (is_whole) {
    speaker_.reset();  // the next words without a tag are mpirun's own
  } else {
    lines_of(speaker_).finish();  // it has waited for the rest of the line once already
  }
}

void RankLines::flush_aged(LineStream::Clock::time_point now) {
  for (auto& [key, source] : sources_) source.lines.flush_aged(now);
}

void RankLines::finish() {
  for (auto& [key, source] : sources_) source.lines.finish();
}

LineStream::Clock::time_point RankLines::due() const {
  auto due = LineStream::Clock::time_point::max();
  for (const auto& [key, source] : sources_) due = std::min(due, source.lines.due());
  return due;
}

}  // namespace entrypoint
