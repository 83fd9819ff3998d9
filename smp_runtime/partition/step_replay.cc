// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/step_replay.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <tuple>

#include "smp_runtime/core/error.h"

namespace smp::partition {
namespace {

constexpr std::int64_t kRuns = 200'000;

class Clockwork {
 public:
  Clockwork(const CallProgram& program, int devices, const ReplayOptions& options)
      : runs_(program.runs),
        options_(options),
        ready_(devices),
        working_(devices, false),
        last_was_backward_(devices, false),
        result_{.step_ns = 0, .busy_ns = std::vector<std::int64_t>(devices, 0)} {
    const auto affordable = kRuns / (2 * static_cast<std::int64_t>(runs_.size()));
    result_.microbatches = static_cast<int>(
        std::min<std::int64_t>(options.shape.microbatches, std::max<std::int64_t>(2, affordable)));
    at_.assign(result_.microbatches, 0);
  }

  Replay run() {
    admit();
    while (true) {
      for (int device = 0; device < static_cast<int>(ready_.size()); ++device) start_next(device);
      if (events_.empty()) break;
      const std::int64_t now = events_.top().at_ns;
      result_.step_ns = now;
      while (!events_.empty() && events_.top().at_ns == now) {  // all of one instant first
        const Event event = events_.top();
        events_.pop();
        if (event.work_done) {
          end_run(event.microbatch);
        } else {
          arrive(event.microbatch);
        }
      }
    }
    SMP_CHECK(finished_ == result_.microbatches, "the replay ended after {} of {} microbatches",
              finished_, result_.microbatches);
    return std::move(result_);
  }

 private:
  struct Event {
    std::int64_t at_ns = 0;
    std::int64_t number = 0;
    int microbatch = 0;
    bool work_done = false;  ///< else a message arrives

    bool operator>(const Event& other) const {
      return std::tie(at_ns, number) > std::tie(other.at_ns, other.number);
    }
  };

  [[nodiscard]] int length() const { return static_cast<int>(runs_.size()); }
  [[nodiscard]] bool backward(int microbatch) const { return at_[microbatch] >= length(); }

  // Step 0 … length - 1 are the forward runs, then the same ones back to the first.
  [[nodiscard]] const Run& run_at(int step) const {
    return runs_[step < length() ? step : 2 * length() - 1 - step];
  }

  void admit() {
    while (started_ < result_.microbatches &&
           started_ - finished_ < std::max(1, options_.shape.open())) {
      arrive(started_++);
    }
  }

  void arrive(int microbatch) {
    const Run& run = run_at(at_[microbatch]);
    ready_[run.device].push_back({.microbatch = microbatch,
                                  .backward = backward(microbatch),
                                  .depth = run.depth,
                                  .arrival = arrivals_++});
  }

  void start_next(int device) {
    auto& tasks = ready_[device];
    if (working_[device] || tasks.empty()) return;
    const bool last = last_was_backward_[device];
    const auto next = std::min_element(
        tasks.begin(), tasks.end(),
        [&](const ReplayTask& a, const ReplayTask& b) { return options_.order(last, a, b); });
    const int microbatch = static_cast<int>(next->microbatch);
    tasks.erase(next);
    const std::int64_t times = backward(microbatch) ? options_.backward_per_forward : 1;
    const std::int64_t work = run_at(at_[microbatch]).work_ns * times;
    working_[device] = true;
    last_was_backward_[device] = backward(microbatch);
    result_.busy_ns[device] += work;
    schedule(result_.step_ns + work, microbatch, /*work_done=*/true);
  }

  void end_run(int microbatch) {
    const int step = at_[microbatch]++;
    working_[run_at(step).device] = false;
    if (at_[microbatch] == 2 * length()) {
      ++finished_;
      admit();
    } else if (at_[microbatch] == length()) {
      arrive(microbatch);  // the backward begins where the forward ended
    } else {
      // Going back, the gradient of the message that the run had begun with.
      const Run& message = step < length() ? run_at(step + 1) : run_at(step);
      const std::int64_t took =
          message.messages * options_.latency_ns + message.bytes * 1000 / options_.bytes_per_us;
      schedule(result_.step_ns + took, microbatch, /*work_done=*/false);
    }
  }

  void schedule(std::int64_t at_ns, int microbatch, bool work_done) {
    events_.push({.at_ns = at_ns,
                  .number = events_made_++,
                  .microbatch = microbatch,
                  .work_done = work_done});
  }

  const std::vector<Run>& runs_;
  const ReplayOptions& options_;
  std::vector<std::vector<ReplayTask>> ready_;  ///< by device
  std::vector<bool> working_;
  std::vector<bool> last_was_backward_;
  std::vector<int> at_;  ///< step of each microbatch
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  int started_ = 0;
  int finished_ = 0;
  std::int64_t arrivals_ = 0;
  std::int64_t events_made_ = 0;
  Replay result_;
};

}  // namespace

double Replay::use() const {
  if (step_ns == 0 || busy_ns.empty()) return 1;
  const auto all = std::accumulate(busy_ns.begin(), busy_ns.end(), 0.0);
  return all / (static_cast<double>(step_ns) * static_cast<double>(busy_ns.size()));
}

Replay replay_step(const CallProgram& program, int devices, const ReplayOptions& options) {
  SMP_CHECK(!program.runs.empty() && devices >= 1 && options.order != nullptr &&
                options.shape.microbatches >= 1 && options.bytes_per_us >= 1,
            "{} runs on {} devices", program.runs.size(), devices);
  return Clockwork(program, devices, options).run();
}

}  // namespace smp::partition
