// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/scheduler.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/named_thread.h"

namespace smp::pipeline {

/// One thread, reused from task to task. Its members belong to the holder of the run token.
class Scheduler::Worker {
 public:
  explicit Worker(Scheduler& owner)
      : owner_(owner), thread_(named_thread("smp-task", [this] { serve(); })) {}

  ~Worker() {
    stopping_ = true;
    turn.release();
    thread_.join();
  }

  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  Task* task = nullptr;
  std::binary_semaphore turn{0};

  static thread_local Worker* here;

  [[nodiscard]] const Scheduler* owner() const { return &owner_; }

  /// Runs its task, on its thread. Throws what that threw.
  void work() {
    prepare();
    try {
      task->body();
    } catch (...) {
      prepared_ = false;
      try {
        prepare();
      } catch (...) {  // the next task says so
      }
      throw;
    }
  }

 private:
  void prepare() {
    if (prepared_) return;
    if (owner_.thread_setup_) owner_.thread_setup_();
    prepared_ = true;
  }

  void serve() {
    here = this;
    while (true) {
      turn.acquire();  // no deadline: an idle thread waits for its next task or its end
      if (stopping_) return;
      if (owner_.turn_setup_) owner_.turn_setup_();
      owner_.lead(*this);
    }
  }

  Scheduler& owner_;
  bool prepared_ = false;  ///< and no task has failed since
  bool stopping_ = false;
  std::thread thread_;  // last: starts with the members above in place
};

thread_local Scheduler::Worker* Scheduler::Worker::here = nullptr;

Scheduler::Scheduler(Schedule schedule, OpenMicrobatches open, std::function<void()> thread_setup,
                     std::function<void()> turn_setup,
                     std::function<DeferredWork(int64_t)> deferred)
    : schedule_(schedule),
      thread_setup_(std::move(thread_setup)),
      turn_setup_(std::move(turn_setup)),
      deferred_(std::move(deferred)),
      open_(std::move(open)) {}

Scheduler::~Scheduler() { cancel_all(); }

void Scheduler::add(TaskKey key, std::function<void()> body) {
  key.arrival = arrivals_++;
  runnable_.push_back(&tasks_.emplace_back(Task{.key = key, .body = std::move(body)}));
}

bool Scheduler::complete(WaitId id, Progress progress) {
  const auto found = waiting_.find(id);
  if (found == waiting_.end()) return false;
  found->second->key.arrival = arrivals_++;
  found->second->key.run = progress.run;
  found->second->key.ranks = progress.ranks;
  runnable_.push_back(found->second);
  waiting_.erase(found);
  return true;
}

std::vector<Scheduler::Task*>::iterator Scheduler::pick() {
  if (order_) {
    const auto next = next_in_order();
    if (next && *next != nullptr) return std::ranges::find(runnable_, *next);
    if (next || !preferred_ || !(overruled_ || order_->empty())) return runnable_.end();
  }
  const auto first = std::ranges::min_element(runnable_, [this](const Task* a, const Task* b) {
    const bool a_may = admits(*a);
    if (a_may != admits(*b)) return a_may;
    return schedule::runs_before(schedule_, last_phase_, a->key, b->key);
  });
  return first != runnable_.end() && admits(**first) ? first : runnable_.end();
}

bool Scheduler::has_premature_forward() {
  if (order_ || schedule_ == Schedule::kSimple || last_phase_ == Phase::kBackward) return false;
  const auto picked = pick();
  if (picked == runnable_.end()) return false;
  const TaskKey& key = (*picked)->key;
  // A body goes before all backwards.
  if ((*picked)->worker != nullptr || key.phase == Phase::kBackward || key.depth == 0) return false;
  const auto state = microbatches_.find(key.microbatch);
  return open_.fill_the_pipeline(state == microbatches_.end() ? key.ranks : state->second.before);
}

Scheduler::Task* Scheduler::take() {
  const auto picked = pick();
  if (picked == runnable_.end()) return nullptr;
  Task& task = **picked;
  runnable_.erase(picked);
  const bool is_new = task.worker == nullptr;
  if (is_new) begin(task.key);
  if (task.key.phase == Phase::kForward) {
    microbatches_[task.key.microbatch].last_forward = task.key.run;
    if (is_new || task.key.depth == 0) {
      open_.begin(task.key.microbatch, task.key.depth == 0);
    }
  }
  strike({.microbatch = task.key.microbatch});
  recorded_.push_back(task.key);
  last_phase_ = task.key.phase;
  return &task;
}

bool Scheduler::admits(const Task& task) const {
  const TaskKey& key = task.key;
  if (key.phase == Phase::kBackward) {
    return open_.admits_backward(recomputed_);
  }
  if (task.worker != nullptr) return true;
  const auto state = microbatches_.find(key.microbatch);
  return open_.admits(key.microbatch,
                      state == microbatches_.end() ? key.ranks : state->second.before);
}

void Scheduler::begin(TaskKey& key) {
  const auto [found, first] =
      microbatches_.try_emplace(key.microbatch, MicrobatchState{.before = key.ranks});
  if (first) ++key.ranks;
  if (key.phase != Phase::kForward) return;
  const int64_t last = found->second.last_forward;
  if (last >= 0 && key.run > last + schedule::kNextRun) open_.revisit();
}

void Scheduler::end_forward(int64_t microbatch) { end_after_work(microbatch, /*all=*/false); }

void Scheduler::close(int64_t microbatch) { end_after_work(microbatch, /*all=*/true); }

void Scheduler::end_after_work(int64_t microbatch, bool all) {
  const auto state = microbatches_.find(microbatch);
  if (state == microbatches_.end() || state->second.closed) return;
  state->second.closed = all;
  const int64_t left = deferred_ ? deferred_(microbatch).left : 0;
  const int64_t work = left - std::exchange(state->second.left, left);
  open_.left(microbatch, work);
  kept_.push_back({.microbatch = microbatch, .all = all, .is_work = work > 0, .until = left});
  end_kept();
}

void Scheduler::end_kept() {
  std::erase_if(kept_, [this](const Kept& kept) {
    if (deferred_ && deferred_(kept.microbatch).done < kept.until) return false;
    if (kept.is_work) strike({.microbatch = kept.microbatch, .is_deferred = true});
    if (kept.all) {
      open_.close(kept.microbatch);
    } else {
      open_.end(kept.microbatch);
    }
    return true;
  });
  std::set<int64_t> microbatches;
  for (const Kept& kept : kept_) microbatches.insert(kept.microbatch);
  recomputed_ = 0;
  for (const int64_t microbatch : microbatches) recomputed_ += deferred_(microbatch).recomputed;
}

std::vector<int64_t> Scheduler::held() const {
  std::vector<int64_t> result;
  for (const Task* task : runnable_) {
    if (!order_ && !admits(*task)) result.push_back(task->key.microbatch);
  }
  return result;
}

void Scheduler::end_microbatch(int64_t microbatch) {
  ended_.insert(microbatch);
  close(microbatch);
}

// --- The run token ---

bool Scheduler::run_tasks(const Between& between) {
  Task* task = take();
  if (task == nullptr) return false;
  between_ = &between;
  resume(*task);
  between_ = nullptr;
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  return true;
}

Scheduler::Worker& Scheduler::idle_worker() {
  if (idle_.empty()) return *workers_.emplace_back(std::make_unique<Worker>(*this));
  Worker& worker = *idle_.back();
  idle_.pop_back();
  return worker;
}

void Scheduler::resume(Task& task) {
  if (task.worker == nullptr) {
    task.worker = &idle_worker();
    task.worker->task = &task;
  }
  task.worker->turn.release();
  loop_turn_.acquire();  // no deadline: user code runs as long as it needs
}

void Scheduler::lead(Worker& worker) {
  Task* next = nullptr;
  if (worker.task == nullptr) next = next_task();  // it stands in for one that has paused
  while (true) {
    if (next != nullptr && next->worker == nullptr) {
      next->worker = &worker;
      worker.task = next;
    }
    if (worker.task == nullptr) break;
    run(worker);
    next = next_task();
  }
  idle_.push_back(&worker);
  (next != nullptr ? next->worker->turn : loop_turn_).release();
}

void Scheduler::run(Worker& worker) {
  Task& task = *worker.task;
  try {
    worker.work();
  } catch (const TaskCancelled&) {
    // The step failed elsewhere; whoever failed reports.
  } catch (...) {
    failure_ = std::current_exception();
  }
  worker.task = nullptr;
  // The body is both forward and backward.
  if (task.key.depth == 0) {
    close(task.key.microbatch);
  } else if (task.key.phase == Phase::kBackward) {
    end_forward(task.key.microbatch);
  }
  drop(task);
}

Scheduler::Task* Scheduler::next_task() {
  if (cancelling_ || failure_) return nullptr;
  try {
    (*between_)();
    return take();
  } catch (...) {
    failure_ = std::current_exception();
    return nullptr;
  }
}

/// Passes the run token on in the middle of a task: to a thread whose stack is empty, for what
/// comes between runs is not to run among the task's thread-local modes.
void Scheduler::pause(Worker& worker, Worker& substitute) {
  substitute.turn.release();
  worker.turn.acquire();  // no deadline: the loop has them and cancels
  if (cancelling_) throw TaskCancelled{};
}

void Scheduler::drop(Task& task) {
  tasks_.remove_if([&task](const Task& other) { return &other == &task; });
}

void Scheduler::cancel_all() {
  cancelling_ = true;
  while (!runnable_.empty() || !waiting_.empty()) {
    std::vector<Task*> open = std::exchange(runnable_, {});
    for (const auto& [id, task] : std::exchange(waiting_, {})) open.push_back(task);
    for (Task* task : open) {
      if (task->worker == nullptr) {
        drop(*task);
      } else {
        resume(*task);  // to its end: wait() and yield() throw from now on
      }
    }
  }
  tasks_.clear();      // one that found no thread to begin on
  failure_ = nullptr;  // of one more while the first one is being reported: that is the cause
  cancelling_ = false;
  order_.reset();
}

// --- The step ---

void Scheduler::begin_step() {
  recorded_.clear();
  ended_.clear();
  kept_.clear();
  recomputed_ = 0;
  microbatches_.clear();
  open_.clear();
  last_phase_ = Phase::kForward;
}

std::vector<std::pair<Scheduler::WaitId, TaskKey>> Scheduler::waiting() const {
  std::vector<std::pair<WaitId, TaskKey>> result;
  for (const auto& [id, task] : waiting_) result.emplace_back(id, task->key);
  return result;
}

Scheduler::Worker& Scheduler::running() const {
  SMP_CHECK(in_task(), "called outside a task of this scheduler");
  return *Worker::here;
}

bool Scheduler::in_task() const {
  const Worker* here = Worker::here;
  return here != nullptr && here->owner() == this && here->task != nullptr;
}

const TaskKey& Scheduler::current() const { return running().task->key; }

void Scheduler::wait(WaitId id) {
  Worker& worker = running();
  if (cancelling_) throw TaskCancelled{};
  Worker& substitute = idle_worker();  // there may be no memory for one: before anything changes
  waiting_.emplace(id, worker.task);
  const TaskKey& key = worker.task->key;
  if (key.depth == 0 && key.phase == Phase::kBackward) end_forward(key.microbatch);
  pause(worker, substitute);
}

void Scheduler::enter(Phase phase) { running().task->key.phase = phase; }

void Scheduler::yield(Phase phase) {
  Worker& worker = running();
  if (cancelling_) throw TaskCancelled{};
  Worker& substitute = idle_worker();
  TaskKey& key = worker.task->key;
  key.phase = phase;
  key.arrival = arrivals_++;
  ++key.run;
  runnable_.push_back(worker.task);
  pause(worker, substitute);
}

}  // namespace smp::pipeline
