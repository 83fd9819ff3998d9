// SPDX-License-Identifier: Apache-2.0
// mpirun's --tag-output prefix, `[1,R]<stdout>:`, with the rank's host written into it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace entrypoint {

/// The end of a tag: Open MPI 4's colon, or the colon and the space of Open MPI 5 (PRRTE).
enum class TagEnd { kColon, kSpace };

struct RankTag {
  int job = 0;
  int rank = 0;
  std::string stream;      ///< "stdout", "stderr" or "stddiag"
  std::size_t length = 0;  ///< bytes of the tag, its end included

  [[nodiscard]] std::string text() const;  ///< as mpirun writes it, with the colon
};

/// The tag at the start of `line`, if there is one.
std::optional<RankTag> parse_rank_tag(std::string_view line, TagEnd end = TagEnd::kColon);

/// The hosts of a job's ranks, and the tags that name them: `[1,mpirank:R,HOST]<stdout>`, the shape
/// that log filters know. At first ranks are taken to lie block by block, as `-map-by slot` puts
/// them; the map that mpirun prints (--display-map) then corrects that, for users may map
/// otherwise.
class RankTags {
 public:
  /// `hosts` in rank order, each with the same number of ranks; none where no ranks are run.
  RankTags(std::vector<std::string> hosts, int ranks_per_host, TagEnd end = TagEnd::kColon)
      : hosts_(std::move(hosts)), ranks_per_host_(ranks_per_host), end_(end) {}

  [[nodiscard]] bool has_ranks() const { return !hosts_.empty(); }
  [[nodiscard]] TagEnd end() const { return end_; }

  /// With the host in it; unchanged for ranks of no known host.
  [[nodiscard]] std::string rewrite(const RankTag& tag) const;

  /// Empty for ranks outside the job.
  [[nodiscard]] std::string host_of(int rank) const;

  /// Takes a line of mpirun's own, of any kind.
  void learn(std::string_view line);

 private:
  std::vector<std::string> hosts_;
  int ranks_per_host_;
  TagEnd end_;
  std::string mapped_host_;
  std::size_t mapped_hosts_ = 0;  ///< so far, in the order of the plan
  std::map<int, std::string> mapped_;
};

}  // namespace entrypoint
