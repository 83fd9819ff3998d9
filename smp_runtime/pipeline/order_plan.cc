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
  size_t position;  // next run
  int64_t arrival;
};

TaskKey key_of(const Token& token, const Run& run) {
  return {.microbatch = token.microbatch,
          .phase = run.phase,
          .depth = run.depth,
          .arrival = token.arrival};
}

/// A rank of the simulation.
struct RankState {
  OpenMicrobatches open;
  std::optional<size_t> first_run;  ///< of each microbatch
  size_t last_run = 0;
  int64_t before = 0;  ///< ranks that it has been on by then
  Phase last = Phase::kForward;

  [[nodiscard]] bool admits(const Token& token) const {
    return token.position > first_run || open.admits(token.microbatch, before);
  }
};

/// Whether the microbatch comes back to a rank after others, and not just from calls that the rank
/// itself has made: see OpenMicrobatches::come_back().
bool comes_back(std::span<const Run> runs, size_t from, size_t to) {
  if (to <= from + kNextRun) return false;
  return std::ranges::any_of(runs.subspan(from + 1, to - from - 1),
                             [&](const Run& between) { return between.depth <= runs[to].depth; });
}

std::vector<RankState> ranks_of(std::span<const Run> runs, const OpenMicrobatches& open,
                                int ranks) {
  std::vector<RankState> states(static_cast<size_t>(ranks), RankState{.open = open});
  int64_t before = 0;
  for (size_t position = 0; position < runs.size(); ++position) {
    RankState& state = states[static_cast<size_t>(runs[position].rank)];
    if (!state.first_run) {
      state.first_run = position;
      state.before = before++;
    } else if (runs[position].phase == Phase::kForward &&
               comes_back(runs, state.last_run, position)) {
      state.open.come_back();
    }
    state.last_run = position;
  }
  return states;
}

}  // namespace

std::vector<std::vector<int64_t>> plan_order(std::span<const Run> runs, int64_t microbatches,
                                             int64_t active, Schedule schedule, int ranks) {
  SMP_CHECK(!runs.empty() && microbatches > 0 && active > 0, "{} runs, {} microbatches, {} active",
            runs.size(), microbatches, active);
  std::vector<std::vector<int64_t>> order(static_cast<size_t>(ranks));
  std::vector<RankState> states = ranks_of(runs, OpenMicrobatches(schedule, active, ranks), ranks);
  std::vector<Token> tokens;  // begun and unfinished
  int64_t begun = 0;
  int64_t arrivals = 0;
  while (true) {
    while (begun < microbatches && static_cast<int64_t>(tokens.size()) < active) {
      tokens.push_back({.microbatch = begun++, .position = 0, .arrival = arrivals++});
    }
    if (tokens.empty()) return order;

    // One tick: every rank does one run of the token that it prefers.
    std::vector<std::optional<size_t>> chosen(static_cast<size_t>(ranks));
    for (size_t index = 0; index < tokens.size(); ++index) {
      const Run& run = runs[tokens[index].position];
      const RankState& state = states[static_cast<size_t>(run.rank)];
      if (!state.admits(tokens[index])) continue;
      auto& best = chosen[static_cast<size_t>(run.rank)];
      if (!best || runs_before(schedule, state.last, key_of(tokens[index], run),
                               key_of(tokens[*best], runs[tokens[*best].position]))) {
        best = index;
      }
    }
    for (size_t rank = 0; rank < chosen.size(); ++rank) {
      if (!chosen[rank]) continue;
      Token& token = tokens[*chosen[rank]];
      RankState& state = states[rank];
      order[rank].push_back(token.microbatch);
      state.last = runs[token.position].phase;
      if (token.position == state.first_run) state.open.open(token.microbatch);
      if (token.position == state.last_run) state.open.close(token.microbatch);
      ++token.position;
      token.arrival = arrivals++;
    }
    std::erase_if(tokens, [&](const Token& token) { return token.position == runs.size(); });
  }
}

}  // namespace smp::pipeline
