// SPDX-License-Identifier: Apache-2.0
// mpirun's --tag-output prefix, `[1,R]<stdout>:`, with the rank's host written into it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace entrypoint::supervise {

struct RankTag {
  int job = 0;
  int rank = 0;
  std::string_view stream;  ///< "stdout", "stderr" or "stddiag"
  std::size_t length = 0;   ///< bytes of the tag, without the colon
};

/// The tag at the start of `line`, if there is one.
std::optional<RankTag> parse_rank_tag(std::string_view line);

/// Rewrites tags to `[1,mpirank:R,HOST]<stdout>`, the shape that log filters know. Where a rank
/// runs is first assumed (block by block, as `-map-by slot` does), then learnt from the map that
/// mpirun prints (--display-map), for users may map otherwise.
class RankTags {
 public:
  /// `hosts` in rank order, each with the same number of ranks. No hosts: nothing is rewritten.
  RankTags(std::vector<std::string> hosts, int ranks_per_host)
      : hosts_(std::move(hosts)), ranks_per_host_(ranks_per_host) {}

  /// `line` starts a line of mpirun's output.
  std::string rewrite(std::string_view line);

  /// Empty for ranks outside the job.
  [[nodiscard]] std::string host_of(int rank) const;

 private:
  void learn(std::string_view line);

  std::vector<std::string> hosts_;
  int ranks_per_host_;
  std::string mapped_host_;
  std::map<int, std::string> mapped_;
};

}  // namespace entrypoint::supervise
