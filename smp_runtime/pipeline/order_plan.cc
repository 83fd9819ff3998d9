// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/order_plan.h"

#include <algorithm>
#include <optional>

#include "smp_runtime/core/error.h"
#include "smp_runtime/pipeline/open_microbatches.h"

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

/// A rank of the simulation.
struct RankState {
  OpenMicrobatches open;
  std::optional<size_t> first_visit;  ///< of each microbatch
  size_t last_visit = 0;
  int64_t before = 0;  ///< ranks that it has been on by then
  Phase last = Phase::kForward;

  [[nodiscard]] bool admits(const Token& token) const {
    return token.position > first_visit || open.admits(token.microbatch, before);
  }
};

/// Whether the microbatch comes back to a rank after others, and not just from calls that the rank
/// itself has made: see OpenMicrobatches::come_back().
bool comes_back(std::span<const Visit> visits, size_t from, size_t to) {
  if (to <= from + kNextVisit) return false;
  return std::ranges::any_of(visits.subspan(from + 1, to - from - 1), [&](const Visit& between) {
    return between.depth <= visits[to].depth;
  });
}

std::vector<RankState> ranks_of(std::span<const Visit> visits, const OpenMicrobatches& open,
                                int ranks) {
  std::vector<RankState> states(static_cast<size_t>(ranks), RankState{.open = open});
  int64_t before = 0;
  for (size_t position = 0; position < visits.size(); ++position) {
    RankState& state = states[static_cast<size_t>(visits[position].rank)];
    if (!state.first_visit) {
      state.first_visit = position;
      state.before = before++;
    } else if (visits[position].phase == Phase::kForward &&
               comes_back(visits, state.last_visit, position)) {
      state.open.come_back();
    }
    state.last_visit = position;
  }
  return states;
}

}  // namespace

std::vector<std::vector<int64_t>> plan_order(std::span<const Visit> visits, int64_t microbatches,
                                             int64_t active, Schedule schedule, int ranks) {
  SMP_CHECK(!visits.empty() && microbatches > 0 && active > 0,
            "{} visits, {} microbatches, {} active", visits.size(), microbatches, active);
  std::vector<std::vector<int64_t>> order(static_cast<size_t>(ranks));
  std::vector<RankState> states =
      ranks_of(visits, OpenMicrobatches(schedule, active, ranks), ranks);
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
      const RankState& state = states[static_cast<size_t>(visit.rank)];
      if (!state.admits(tokens[index])) continue;
      auto& best = chosen[static_cast<size_t>(visit.rank)];
      if (!best || runs_before(schedule, state.last, key_of(tokens[index], visit),
                               key_of(tokens[*best], visits[tokens[*best].position]))) {
        best = index;
      }
    }
    for (size_t rank = 0; rank < chosen.size(); ++rank) {
      if (!chosen[rank]) continue;
      Token& token = tokens[*chosen[rank]];
      RankState& state = states[rank];
      order[rank].push_back(token.microbatch);
      state.last = visits[token.position].phase;
      if (token.position == state.first_visit) state.open.open(token.microbatch);
      if (token.position == state.last_visit) state.open.close(token.microbatch);
      ++token.position;
      token.arrival = arrivals++;
    }
    std::erase_if(tokens, [&](const Token& token) { return token.position == visits.size(); });
  }
}

}  // namespace smp::pipeline
