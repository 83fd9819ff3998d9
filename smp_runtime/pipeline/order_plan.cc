// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/order_plan.h"

#include <algorithm>
#include <optional>

#include "smp_runtime/core/error.h"

namespace smp::pipeline {
namespace {

struct Token {
  int64_t microbatch;
  size_t position;  // next visit
  int64_t arrival;
};

TaskKey key_of(const Token& token, const Visit& visit) {
  return {.microbatch = token.microbatch,
          .phase = visit.phase,
          .depth = visit.depth,
          .arrival = token.arrival};
}

}  // namespace

std::vector<std::vector<int64_t>> plan_order(std::span<const Visit> visits, int64_t microbatches,
                                             int64_t active, Schedule schedule, int ranks) {
  SMP_CHECK(!visits.empty() && microbatches > 0 && active > 0,
            "{} visits, {} microbatches, {} active", visits.size(), microbatches, active);
  std::vector<std::vector<int64_t>> order(static_cast<size_t>(ranks));
  std::vector<Phase> last(order.size(), Phase::kForward);
  std::vector<Token> tokens;  // begun and unfinished
  int64_t begun = 0;
  int64_t arrivals = 0;
  while (true) {
    while (begun < microbatches && static_cast<int64_t>(tokens.size()) < active) {
      tokens.push_back({.microbatch = begun++, .position = 0, .arrival = arrivals++});
    }
    if (tokens.empty()) return order;

    // One tick: every rank runs one visit of the token that it prefers.
    std::vector<std::optional<size_t>> chosen(static_cast<size_t>(ranks));
    for (size_t index = 0; index < tokens.size(); ++index) {
      const Visit& visit = visits[tokens[index].position];
      auto& best = chosen[static_cast<size_t>(visit.rank)];
      if (!best ||
          runs_before(schedule, last[static_cast<size_t>(visit.rank)], key_of(tokens[index], visit),
                      key_of(tokens[*best], visits[tokens[*best].position]))) {
        best = index;
      }
    }
    for (size_t rank = 0; rank < chosen.size(); ++rank) {
      if (!chosen[rank]) continue;
      Token& token = tokens[*chosen[rank]];
      order[rank].push_back(token.microbatch);
      last[rank] = visits[token.position].phase;
      ++token.position;
      token.arrival = arrivals++;
    }
    std::erase_if(tokens, [&](const Token& token) { return token.position == visits.size(); });
  }
}

}  // namespace smp::pipeline
