// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/schedule/simulation.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include "smp_runtime/core/error.h"
#include "smp_runtime/schedule/open_microbatches.h"

namespace smp::schedule {
namespace {

/// A microbatch that has come to a rank, and waits there.
struct Waiting {
  int64_t microbatch;
  int64_t arrival;
};

struct SimulatedRank {
  OpenMicrobatches open;
  std::map<int64_t, std::deque<size_t>> deferred;  ///< runs that have left work, by microbatch
  std::optional<size_t> first_run;                 ///< of each microbatch
  size_t last_run = 0;
  int64_t before = 0;  ///< ranks that it has been on by then
  Phase last = Phase::kForward;
  bool working = false;
  std::vector<Waiting> waiting;
};

/// True if the microbatch comes back to a rank after others, and not just from calls that the rank
/// itself has made: see OpenMicrobatches::revisit().
bool is_revisit(std::span<const Run> runs, size_t from, size_t to) {
  if (to <= from + kNextRun) return false;
  return std::ranges::any_of(runs.subspan(from + 1, to - from - 1),
                             [&](const Run& between) { return between.depth <= runs[to].depth; });
}

/// True if a run is of the same call as one before it, or behind it for `step` -1: between them
/// there are only calls that it makes.
bool has_neighbour(std::span<const Run> runs, size_t position, std::ptrdiff_t step) {
  const Run& run = runs[position];
  const auto size = static_cast<std::ptrdiff_t>(runs.size());
  for (auto at = static_cast<std::ptrdiff_t>(position) - step; at >= 0 && at < size; at -= step) {
    const Run& other = runs[static_cast<size_t>(at)];
    if (other.depth > run.depth) continue;
    return other.depth == run.depth && other.rank == run.rank && other.phase == run.phase;
  }
  return false;
}

/// A forward of the rank begins with a run, or is over with it, or both.
struct Forwards {
  bool begins = false;
  bool ends = false;
};

/// By run. Each one of the body counts.
std::vector<Forwards> forwards_of(std::span<const Run> runs) {
  std::vector<Forwards> result;
  for (size_t position = 0; position < runs.size(); ++position) {
    const Run& run = runs[position];
    const bool is_forward = run.phase == Phase::kForward;
    const bool is_body = run.depth == 0;
    result.push_back(
        {.begins = is_forward && (is_body || !has_neighbour(runs, position, 1)),
         .ends = run.turns || (!is_forward && (is_body || !has_neighbour(runs, position, -1)))});
  }
  return result;
}

std::vector<SimulatedRank> ranks_of(std::span<const Run> runs,
                                    const std::vector<Forwards>& forwards,
                                    const OpenMicrobatches& open, int ranks) {
  std::vector<SimulatedRank> made(static_cast<size_t>(ranks), SimulatedRank{.open = open});
  std::vector<std::vector<int64_t>> left(made.size());
  int64_t before = 0;
  for (size_t position = 0; position < runs.size(); ++position) {
    SimulatedRank& rank = made[static_cast<size_t>(runs[position].rank)];
    if (!rank.first_run) {
      rank.first_run = position;
      rank.before = before++;
    } else if (runs[position].phase == Phase::kForward &&
               is_revisit(runs, rank.last_run, position)) {
      rank.open.revisit();
    }
    rank.last_run = position;
    if (forwards[position].ends) {
      left[static_cast<size_t>(runs[position].rank)].push_back(runs[position].deferred);
    }
  }
  for (size_t rank = 0; rank < made.size(); ++rank) {
    const auto& first = made[rank].first_run;
    if (first) made[rank].open.expect(left[rank], runs[*first].depth == 0);
  }
  return made;
}

class Clockwork {
 public:
  Clockwork(std::span<const Run> runs, const ScheduleShape& shape, int ranks)
      : runs_(runs),
        forwards_(forwards_of(runs)),
        shape_(shape),
        ranks_(ranks_of(runs, forwards_, OpenMicrobatches(shape, ranks), ranks)),
        next_run_(static_cast<size_t>(shape.microbatches), 0),
        result_{.begun = std::vector<std::vector<BegunRun>>(ranks_.size()),
                .busy = std::vector<int64_t>(ranks_.size(), 0),
                .memory = std::vector<double>(ranks_.size(), 0)} {}

  Simulation run() {
    admit();
    while (true) {
      for (size_t rank = 0; rank < ranks_.size(); ++rank) start_next(rank);
      if (events_.empty()) break;
      result_.length = events_.top().at;
      while (!events_.empty() && events_.top().at == result_.length) {  // all of one instant first
        const Event event = events_.top();
        events_.pop();
        if (event.kind == Event::kMessage) {
          arrive(event.microbatch);
        } else if (event.kind == Event::kRun) {
          end_run(event.microbatch);
        } else {
          end_deferred(event.microbatch, event.run);
        }
      }
    }
    SMP_CHECK(finished_ == shape_.microbatches, "the simulation ended after {} of {} microbatches",
              finished_, shape_.microbatches);
    return std::move(result_);
  }

 private:
  struct Event {
    enum Kind : uint8_t { kMessage, kRun, kDeferred };  ///< arrives, or is done
    int64_t at = 0;
    int64_t number = 0;
    int64_t microbatch = 0;
    Kind kind = kMessage;
    size_t run = 0;  ///< of kDeferred

    bool operator>(const Event& other) const {
      return std::tie(at, number) > std::tie(other.at, other.number);
    }
  };

  [[nodiscard]] size_t& next_run(int64_t microbatch) {
    return next_run_[static_cast<size_t>(microbatch)];
  }
  [[nodiscard]] SimulatedRank& rank_of(const Run& run) {
    return ranks_[static_cast<size_t>(run.rank)];
  }

  void admit() {
    while (begun_ < shape_.microbatches && begun_ - finished_ < shape_.in_flight())
      arrive(begun_++);
  }

  void arrive(int64_t microbatch) {
    rank_of(runs_[next_run(microbatch)]).waiting.push_back({microbatch, arrivals_++});
  }

  [[nodiscard]] bool admits(const SimulatedRank& rank, int64_t microbatch) {
    const size_t next = next_run(microbatch);
    if (runs_[next].phase == Phase::kBackward) {
      int64_t recomputed = 0;
      for (const auto& [other, left] : rank.deferred) {
        for (const size_t run : left) recomputed += runs_[run].recomputes ? runs_[run].deferred : 0;
      }
      return rank.open.admits_backward(recomputed);
    }
    const bool begins_call =
        forwards_[next].begins && (runs_[next].depth > 0 || next == *rank.first_run);
    return !begins_call || rank.open.admits(microbatch, rank.before);
  }

  [[nodiscard]] TaskKey key_of(const Waiting& waiting) {
    const Run& run = runs_[next_run(waiting.microbatch)];
    return {.microbatch = waiting.microbatch,
            .phase = run.phase,
            .depth = run.depth,
            .arrival = waiting.arrival,
            .run = static_cast<int64_t>(next_run(waiting.microbatch))};
  }

  void start_next(size_t number) {
    SimulatedRank& rank = ranks_[number];
    if (rank.working) return;
    std::optional<size_t> best;
    for (size_t index = 0; index < rank.waiting.size(); ++index) {
      if (!admits(rank, rank.waiting[index].microbatch)) continue;
      if (!best || runs_before(shape_.schedule, rank.last, key_of(rank.waiting[index]),
                               key_of(rank.waiting[*best]))) {
        best = index;
      }
    }
    if (best) {
      begin_run(number, *best);
    } else if (!rank.deferred.empty()) {
      begin_deferred(number);
    }
  }

  void begin_run(size_t number, size_t index) {
    SimulatedRank& rank = ranks_[number];
    const int64_t microbatch = rank.waiting[index].microbatch;
    rank.waiting.erase(rank.waiting.begin() + static_cast<std::ptrdiff_t>(index));
    const size_t position = next_run(microbatch);
    const Run& run = runs_[position];
    rank.working = true;
    rank.last = run.phase;
    if (forwards_[position].begins) {
      rank.open.begin(microbatch, run.depth == 0);
      if (shape_.schedule == Schedule::kZeroBubble) {
        result_.memory[number] = std::max(result_.memory[number], rank.open.memory());
      }
    }
    if (forwards_[position].ends) rank.open.left(microbatch, run.deferred);
    if (defers(run)) {
      rank.deferred[microbatch].push_back(position);
    } else {
      end_call(rank, microbatch, position);
    }
    result_.begun[number].push_back(
        {.microbatch = microbatch, .run = position, .begin = result_.length});
    const int64_t work = run.work + (defers(run) ? 0 : run.deferred);
    result_.busy[number] += work;
    schedule(work, {.microbatch = microbatch, .kind = Event::kRun});
  }

  void begin_deferred(size_t number) {
    SimulatedRank& rank = ranks_[number];
    const auto lowest = rank.deferred.begin();
    const auto [microbatch, position] = std::pair(lowest->first, lowest->second.front());
    lowest->second.pop_front();
    if (lowest->second.empty()) rank.deferred.erase(lowest);
    rank.working = true;
    result_.begun[number].push_back(
        {.microbatch = microbatch, .run = position, .begin = result_.length, .is_deferred = true});
    result_.busy[number] += runs_[position].deferred;
    schedule(runs_[position].deferred,
             {.microbatch = microbatch, .kind = Event::kDeferred, .run = position});
  }

  [[nodiscard]] bool defers(const Run& run) const {
    return shape_.schedule == Schedule::kZeroBubble && run.deferred > 0;
  }

  void end_call(SimulatedRank& rank, int64_t microbatch, size_t position) {
    if (forwards_[position].ends) rank.open.end(microbatch);
    if (position == rank.last_run) rank.open.close(microbatch);
  }

  void end_deferred(int64_t microbatch, size_t position) {
    SimulatedRank& rank = rank_of(runs_[position]);
    rank.working = false;
    end_call(rank, microbatch, position);
  }

  void end_run(int64_t microbatch) {
    size_t& next = next_run(microbatch);
    rank_of(runs_[next]).working = false;
    if (++next == runs_.size()) {
      ++finished_;
      admit();
    } else if (runs_[next].message == 0) {
      arrive(microbatch);
    } else {
      schedule(runs_[next].message, {.microbatch = microbatch});
    }
  }

  void schedule(int64_t after, Event event) {
    event.at = result_.length + after;
    event.number = events_made_++;
    events_.push(event);
  }

  const std::span<const Run> runs_;
  const std::vector<Forwards> forwards_;  ///< by run
  const ScheduleShape shape_;
  std::vector<SimulatedRank> ranks_;
  std::vector<size_t> next_run_;  ///< of each microbatch
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  int64_t begun_ = 0;
  int64_t finished_ = 0;
  int64_t arrivals_ = 0;
  int64_t events_made_ = 0;
  Simulation result_;
};

}  // namespace

std::vector<Run> runs_of_equal_stages(int stages, int64_t forward, int64_t backward) {
  std::vector<Run> runs;
  for (int stage = 0; stage < stages; ++stage) {
    runs.push_back({.rank = stage, .depth = stage, .work = forward});
  }
  for (int stage = stages - 1; stage >= 0 && backward > 0; --stage) {
    runs.push_back({.rank = stage, .phase = Phase::kBackward, .depth = stage, .work = backward});
  }
  return runs;
}

std::vector<std::vector<PlannedWork>> Simulation::orders() const {
  std::vector<std::vector<PlannedWork>> orders;
  for (const std::vector<BegunRun>& runs : begun) {
    std::vector<PlannedWork>& order = orders.emplace_back();
    for (const BegunRun& run : runs) {
      order.push_back({.microbatch = run.microbatch, .is_deferred = run.is_deferred});
    }
  }
  return orders;
}

double Simulation::use() const {
  if (length == 0) return 1;
  const double all = std::accumulate(busy.begin(), busy.end(), 0.0);
  return all / (static_cast<double>(length) * static_cast<double>(busy.size()));
}

Simulation simulate_schedule(std::span<const Run> runs, const ScheduleShape& shape, int ranks) {
  SMP_CHECK(!runs.empty() && shape.microbatches > 0 && shape.active_microbatches > 0,
            "{} runs, {} microbatches, {} active", runs.size(), shape.microbatches,
            shape.active_microbatches);
  return Clockwork(runs, shape, ranks).run();
}

}  // namespace smp::schedule
