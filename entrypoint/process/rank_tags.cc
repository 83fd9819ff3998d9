// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/process/rank_tags.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace entrypoint {
namespace {

// Takes a number off the front of `text`.
std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

bool take(std::string_view& text, std::string_view expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}

std::string_view after(std::string_view text, std::string_view mark) {
  const std::size_t position = text.find(mark);
  return position == std::string_view::npos ? std::string_view{}
                                            : text.substr(position + mark.size());
}

}  // namespace

std::optional<RankTag> parse_rank_tag(std::string_view line, TagEnd end) {
  std::string_view rest = line;
  if (!take(rest, "[")) return std::nullopt;
  const auto job = take_number(rest);
  if (!job || !take(rest, ",")) return std::nullopt;
  const auto rank = take_number(rest);
  if (!rank || !take(rest, "]<")) return std::nullopt;
  for (const std::string_view stream : {"stdout", "stderr", "stddiag"}) {
    if (take(rest, stream)) {
      if (!take(rest, ">:")) return std::nullopt;
      if (end == TagEnd::kSpace) take(rest, " ");
      return RankTag{.job = *job,
                     .rank = *rank,
                     .stream = std::string(stream),
                     .length = line.size() - rest.size()};
    }
  }
  return std::nullopt;
}

std::string RankTag::text() const { return fmt::format("[{},{}]<{}>:", job, rank, stream); }

std::string RankTags::rewrite(const RankTag& tag) const {
  const std::string host = host_of(tag.rank);
  if (host.empty()) return tag.text();
  return fmt::format("[{},mpirank:{},{}]<{}>:", tag.job, tag.rank, host, tag.stream);
}

std::string RankTags::host_of(int rank) const {
  if (const auto found = mapped_.find(rank); found != mapped_.end()) return found->second;
  const auto index = static_cast<std::size_t>(rank / (ranks_per_host_ > 0 ? ranks_per_host_ : 1));
  return index < hosts_.size() ? hosts_[index] : std::string{};
}

void RankTags::learn(std::string_view line) {
  if (hosts_.empty()) return;
  // " Data for node: algo-1  Num slots: 2 …" opens the list of a host's ranks.
  if (std::string_view node = after(line, "Data for node: "); !node.empty()) {
    mapped_host_ = node.substr(0, node.find_first_of(" \t\r\n"));
    // Open MPI 5 writes what a host calls itself, which may be no name of the job.
    const std::size_t place = mapped_hosts_++;
    const bool is_known = std::ranges::find(hosts_, mapped_host_) != hosts_.end();
    if (!is_known && place < hosts_.size()) mapped_host_ = hosts_[place];
    return;
  }
  // "    Process OMPI jobid: [7,1] App: 0 Process rank: 3 Bound: N/A"; Open MPI 5:
  // "    Process jobid: prterun-algo-1-7@1 App: 0 Process rank: 3 Bound: N/A"
  if (std::string_view text = after(line, "Process rank: ");
      !text.empty() && !mapped_host_.empty() && line.find(" jobid: ") != std::string_view::npos) {
    if (const auto rank = take_number(text)) mapped_[*rank] = mapped_host_;
  }
}

}  // namespace entrypoint
