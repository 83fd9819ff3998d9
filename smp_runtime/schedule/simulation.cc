// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/schedule/simulation.h"

#include <algorithm>
#include <functional>
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
  std::optional<size_t> first_run;  ///< of each microbatch
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

std::vector<SimulatedRank> ranks_of(std::span<const Run> runs, const OpenMicrobatches& open,
                                    int ranks) {
  std::vector<SimulatedRank> made(static_cast<size_t>(ranks), SimulatedRank{.open = open});
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
  }
  return made;
}

class Clockwork {
 public:
  Clockwork(std::span<const Run> runs, const ScheduleShape& shape, int ranks)
      : runs_(runs),
        shape_(shape),
        ranks_(ranks_of(runs, OpenMicrobatches(shape.schedule, shape.active_microbatches, ranks),
                        ranks)),
        next_run_(static_cast<size_t>(shape.microbatches), 0),
        result_{.begun = std::vector<std::vector<BegunRun>>(ranks_.size()),
                .busy = std::vector<int64_t>(ranks_.size(), 0)} {}

  Simulation run() {
    admit();
    while (true) {
      for (size_t rank = 0; rank < ranks_.size(); ++rank) start_next(rank);
      if (events_.empty()) break;
      result_.length = events_.top().at;
      while (!events_.empty() && events_.top().at == result_.length) {  // all of one instant first
        const Event event = events_.top();
        events_.pop();
        if (event.work_done) {
          end_run(event.microbatch);
        } else {
          arrive(event.microbatch);
        }
      }
    }
    SMP_CHECK(finished_ == shape_.microbatches, "the simulation ended after {} of {} microbatches",
              finished_, shape_.microbatches);
    return std::move(result_);
  }

 private:
  struct Event {
    int64_t at = 0;
    int64_t number = 0;
    int64_t microbatch = 0;
    bool work_done = false;  ///< else a message arrives

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
    return next_run(microbatch) > *rank.first_run || rank.open.admits(microbatch, rank.before);
  }

  [[nodiscard]] TaskKey key_of(const Waiting& waiting) {
    const Run& run = runs_[next_run(waiting.microbatch)];
    return {.microbatch = waiting.microbatch,
            .phase = run.phase,
            .depth = run.depth,
            .arrival = waiting.arrival};
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
    if (!best) return;
    const int64_t microbatch = rank.waiting[*best].microbatch;
    rank.waiting.erase(rank.waiting.begin() + static_cast<std::ptrdiff_t>(*best));
    const size_t position = next_run(microbatch);
    rank.working = true;
    rank.last = runs_[position].phase;
    if (position == rank.first_run) rank.open.open(microbatch);
    if (position == rank.last_run) rank.open.close(microbatch);
    result_.begun[number].push_back(
        {.microbatch = microbatch, .run = position, .begin = result_.length});
    result_.busy[number] += runs_[position].work;
    schedule(runs_[position].work, microbatch, /*work_done=*/true);
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
      schedule(runs_[next].message, microbatch, /*work_done=*/false);
    }
  }

  void schedule(int64_t after, int64_t microbatch, bool work_done) {
    events_.push({.at = result_.length + after,
                  .number = events_made_++,
                  .microbatch = microbatch,
                  .work_done = work_done});
  }

  const std::span<const Run> runs_;
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

std::vector<std::vector<int64_t>> Simulation::orders() const {
  std::vector<std::vector<int64_t>> orders;
  for (const std::vector<BegunRun>& runs : begun) {
    std::vector<int64_t>& order = orders.emplace_back();
    for (const BegunRun& run : runs) order.push_back(run.microbatch);
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
