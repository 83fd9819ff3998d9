// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/scheduler.h"

#include <algorithm>
#include <span>
#include <thread>
#include <utility>

#include <pthread.h>

#include "smp_runtime/core/error.h"

namespace smp::pipeline {

/// One thread, reused from task to task. Its members belong to the holder of the baton.
class Scheduler::Worker {
 public:
  explicit Worker(Scheduler& owner) : owner_(owner), thread_([this] { serve(); }) {
    pthread_setname_np(thread_.native_handle(), "smp-task");
  }

  ~Worker() {
    stopping_ = true;
    turn.release();
    thread_.join();
  }

  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  TaskKey key;
  std::function<void()> body;
  std::exception_ptr error;
  bool begun = false;
  bool done = false;
  std::binary_semaphore turn{0};

  static thread_local Worker* here;

  [[nodiscard]] const Scheduler* owner() const { return &owner_; }

 private:
  void serve() {
    here = this;
    bool prepared = false;
    while (true) {
      turn.acquire();  // no deadline: an idle thread waits for its next task or its end
      if (stopping_) return;
      try {
        if (!std::exchange(prepared, true) && owner_.thread_setup_) owner_.thread_setup_();
        body();
      } catch (const TaskCancelled&) {
        // The step failed elsewhere; whoever failed reports.
      } catch (...) {
        error = std::current_exception();
      }
      body = nullptr;
      done = true;
      owner_.loop_turn_.release();
    }
  }

  Scheduler& owner_;
  bool stopping_ = false;
  std::thread thread_;  // last: starts with the members above in place
};

thread_local Scheduler::Worker* Scheduler::Worker::here = nullptr;

Scheduler::Scheduler(Schedule schedule, OpenMicrobatches open, std::function<void()> thread_setup)
    : schedule_(schedule), thread_setup_(std::move(thread_setup)), open_(std::move(open)) {}

Scheduler::~Scheduler() { cancel_all(); }

void Scheduler::add(TaskKey key, std::function<void()> body) {
  if (idle_.empty()) {
    workers_.push_back(std::make_unique<Worker>(*this));
    idle_.push_back(workers_.back().get());
  }
  Worker* worker = idle_.back();
  idle_.pop_back();
  key.arrival = arrivals_++;
  worker->key = key;
  worker->body = std::move(body);
  worker->error = nullptr;
  worker->begun = false;
  worker->done = false;
  runnable_.push_back(worker);
  ++open_tasks_;
}

bool Scheduler::complete(WaitId id, Progress progress) {
  const auto found = waiting_.find(id);
  if (found == waiting_.end()) return false;
  found->second->key.arrival = arrivals_++;
  found->second->key.visit = progress.visit;
  found->second->key.ranks = progress.ranks;
  runnable_.push_back(found->second);
  waiting_.erase(found);
  return true;
}

std::vector<Scheduler::Worker*>::iterator Scheduler::pick() {
  if (order_) {
    if (next_in_order_ == order_->size()) return runnable_.end();
    const int64_t microbatch = (*order_)[next_in_order_];
    const auto found = std::ranges::find_if(
        runnable_, [&](const Worker* worker) { return worker->key.microbatch == microbatch; });
    if (found != runnable_.end()) ++next_in_order_;
    return found;
  }
  const auto first = std::ranges::min_element(runnable_, [this](const Worker* a, const Worker* b) {
    const bool a_may = admits(*a);
    if (a_may != admits(*b)) return a_may;
    return runs_before(schedule_, last_phase_, a->key, b->key);
  });
  return first != runnable_.end() && admits(**first) ? first : runnable_.end();
}

bool Scheduler::run_next() {
  const auto picked = pick();
  if (picked == runnable_.end()) return false;
  Worker& worker = **picked;
  runnable_.erase(picked);
  if (!worker.begun) begin(worker.key);
  if (worker.key.phase == Phase::kForward) {
    stays_[worker.key.microbatch].last_forward = worker.key.visit;
  }
  trail_.push_back(worker.key);
  last_phase_ = worker.key.phase;
  resume(worker);
  return true;
}

bool Scheduler::admits(const Worker& worker) const {
  const TaskKey& key = worker.key;
  if (worker.begun || key.phase == Phase::kBackward) return true;
  const auto stay = stays_.find(key.microbatch);
  if (stay == stays_.end()) return open_.admits(key.microbatch, key.ranks);
  return stay->second.forwards > 0 || open_.admits(key.microbatch, stay->second.before);
}

void Scheduler::begin(TaskKey& key) {
  const auto [found, first] = stays_.try_emplace(key.microbatch, Stay{.before = key.ranks});
  if (first) ++key.ranks;
  if (key.phase != Phase::kForward) return;
  Stay& stay = found->second;
  if (stay.last_forward >= 0 && key.visit > stay.last_forward + kNextVisit) open_.come_back();
  if (++stay.forwards == 1) open_.open(key.microbatch);
}

void Scheduler::settle(int64_t microbatch) {
  int64_t& forwards = stays_[microbatch].forwards;
  if (forwards > 0 && --forwards == 0) open_.close(microbatch);
}

std::vector<int64_t> Scheduler::held() const {
  std::vector<int64_t> result;
  for (const Worker* worker : runnable_) {
    if (!order_ && !admits(*worker)) result.push_back(worker->key.microbatch);
  }
  return result;
}

void Scheduler::end_microbatch(int64_t microbatch) {
  ended_.insert(microbatch);
  open_.close(microbatch);
}

void Scheduler::resume(Worker& worker) {
  worker.begun = true;
  worker.turn.release();
  loop_turn_.acquire();  // no deadline: user code runs as long as it needs
  if (!worker.done) return;
  // The body is both forward and backward.
  if (worker.key.phase == Phase::kBackward || worker.key.depth == 0) settle(worker.key.microbatch);
  --open_tasks_;
  idle_.push_back(&worker);
  if (worker.error) std::rethrow_exception(std::exchange(worker.error, nullptr));
}

void Scheduler::cancel_all() {
  cancelling_ = true;
  std::vector<Worker*> open = std::exchange(runnable_, {});
  for (const auto& [id, worker] : std::exchange(waiting_, {})) open.push_back(worker);
  for (Worker* worker : open) {
    if (!worker->begun) {
      worker->body = nullptr;
      --open_tasks_;
      idle_.push_back(worker);
      continue;
    }
    try {
      resume(*worker);  // to its end: wait() and yield() throw from now on
    } catch (...) {
      // A second error while the first one is being reported: the first one is the cause.
    }
  }
  cancelling_ = false;
  order_.reset();
}

void Scheduler::begin_step() {
  trail_.clear();
  ended_.clear();
  stays_.clear();
  open_.clear();
  last_phase_ = Phase::kForward;
}

void Scheduler::follow(std::vector<int64_t> order) {
  order_ = std::move(order);
  next_in_order_ = 0;
}

bool Scheduler::order_is_wrong() const {
  if (!order_ || open_tasks_ == 0) return false;
  const auto left = std::span(*order_).subspan(next_in_order_);
  if (left.empty() || ended_.contains(left.front())) return true;
  return std::ranges::any_of(runnable_, [left](const Worker* worker) {
    return std::ranges::find(left, worker->key.microbatch) == left.end();
  });
}

std::vector<std::pair<Scheduler::WaitId, TaskKey>> Scheduler::waiting() const {
  std::vector<std::pair<WaitId, TaskKey>> result;
  for (const auto& [id, worker] : waiting_) result.emplace_back(id, worker->key);
  return result;
}

Scheduler::Worker& Scheduler::running() const {
  SMP_CHECK(in_task(), "called outside a task of this scheduler");
  return *Worker::here;
}

bool Scheduler::in_task() const { return Worker::here && Worker::here->owner() == this; }

const TaskKey& Scheduler::current() const { return running().key; }

void Scheduler::give_back(Worker& worker) {
  loop_turn_.release();
  worker.turn.acquire();  // no deadline: the loop has them and cancels
  if (cancelling_) throw TaskCancelled{};
}

void Scheduler::wait(WaitId id) {
  Worker& worker = running();
  if (cancelling_) throw TaskCancelled{};
  waiting_.emplace(id, &worker);
  give_back(worker);
}

void Scheduler::enter(Phase phase) { running().key.phase = phase; }

void Scheduler::yield(Phase phase) {
  Worker& worker = running();
  if (cancelling_) throw TaskCancelled{};
  worker.key.phase = phase;
  worker.key.arrival = arrivals_++;
  ++worker.key.visit;
  runnable_.push_back(&worker);
  give_back(worker);
}

}  // namespace smp::pipeline
