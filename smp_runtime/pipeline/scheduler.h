// SPDX-License-Identifier: Apache-2.0
// Runs a rank's tasks one at a time, on threads of its own so that they can pause in the middle. A
// task is the body of the step for one microbatch (Server::drive adds those, as many at a time as
// StepOrder::active() says), or a call of another rank to a module of this one.
//
// Exactly one thread holds the run token: the loop's (whoever calls run_tasks) or one of the
// scheduler's. Only the holder touches the scheduler, so there is no lock: passing the run token
// orders all accesses. A thread whose task has ended keeps the run token and begins the next task
// itself: a change of threads costs two system calls and the contents of a processor's caches.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <semaphore>
#include <set>
#include <utility>
#include <vector>

#include "smp_runtime/schedule/open_microbatches.h"
#include "smp_runtime/schedule/simulation.h"
#include "smp_runtime/schedule/task_order.h"

namespace smp::pipeline {

using schedule::OpenMicrobatches;
using schedule::Phase;
using schedule::PlannedWork;
using schedule::Schedule;
using schedule::TaskKey;

/// Pieces of work that a microbatch's backwards have left for later, and those that are done, in
/// the same order.
struct DeferredWork {
  int64_t left = 0;
  int64_t done = 0;
  int64_t recomputed = 0;  ///< not done, and keep activations that a backward has recomputed

  [[nodiscard]] bool is_done() const { return done == left; }
};

/// Thrown inside a paused task to unwind it when its step has failed elsewhere. A std::exception,
/// since it passes through autograd, which handles no others.
struct TaskCancelled : std::exception {
  [[nodiscard]] const char* what() const noexcept override { return "the step has failed"; }
};

class Scheduler {
 public:
  /// Names the event that a task waits for: unique among what is awaited at one time.
  using WaitId = uint64_t;

  /// `open` bounds how many microbatches have begun here, unless a recorded order is followed, and
  /// how much deferred work keeps recomputed activations.
  /// `thread_setup` runs on each thread that the scheduler makes, before its first task and after
  /// each one that failed; `turn_setup` whenever such a thread gets the run token with no task on
  /// its stack, before all that it does with it, and throws nothing.
  /// `deferred`: work of a microbatch that its backwards have left, and that keeps activations: a
  /// forward whose backward is over counts until what was left by then is done, as end_kept() sees.
  Scheduler(Schedule schedule, OpenMicrobatches open, std::function<void()> thread_setup,
            std::function<void()> turn_setup = {},
            std::function<DeferredWork(int64_t)> deferred = {});
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // --- Called outside tasks, with the run token ---

  /// Forgets the runs of an earlier step.
  void begin_step();

  /// Makes a task; it first runs when run_tasks() picks it.
  void add(TaskKey key, std::function<void()> body);

  /// Progress of a microbatch; see TaskKey.
  struct Progress {
    int64_t run = 0;
    int64_t ranks = 0;
  };
  /// Makes the task that waits for `id` runnable. False if none waits for it.
  bool complete(WaitId id, Progress progress);

  /// Called after each run, on the thread that holds the run token.
  using Between = std::function<void()>;
  /// By the loop: lets the next runnable task run until it pauses or ends, and then the next one,
  /// for as long as there is one. False if there was none to run. Rethrows what a task, which is
  /// then over, or `between` threw.
  bool run_tasks(const Between& between);

  /// True if run_tasks() would begin a forward although it is a backward's turn, and the other
  /// ranks have enough to do without it.
  [[nodiscard]] bool has_premature_forward();

  /// Unwinds all tasks with TaskCancelled and drops those not begun. Afterwards there are none, and
  /// no recorded order.
  void cancel_all();

  /// Fixes the order of work to `order` (see StepOrder); or, where it is only `preferred`, until
  /// it is overruled.
  void follow(std::vector<PlannedWork> order, bool preferred);
  /// True if there are runnable tasks, but an order that is not only preferred waits for another
  /// one.
  [[nodiscard]] bool held_by_order() const { return order_ && !preferred_ && !runnable_.empty(); }
  /// True if a preferred order waits for its next work, and has not been overruled.
  [[nodiscard]] bool prefers_to_wait() const { return order_ && preferred_ && !overruled_; }
  /// The next work is what a preferred order has first of what there is, or else any.
  void overrule() { overruled_ = true; }
  /// True unless a preferred order has other work for now.
  [[nodiscard]] bool may_defer() const;
  /// A piece of deferred work is done: counts no more what it kept.
  void end_kept();
  /// Nothing of `microbatch` will run any more in this step.
  void end_microbatch(int64_t microbatch);
  /// Once run_tasks() finds nothing to run: true if the order, not just a preferred one, is at its
  /// end though there are tasks, waits for a microbatch that has ended, or has no place for a
  /// runnable one: the step is not like the one it was made from. False is no proof that it is.
  [[nodiscard]] bool order_is_wrong() const;
  /// Returns to the order of runs_before().
  void drop_order() { order_.reset(); }

  [[nodiscard]] size_t tasks() const { return tasks_.size(); }
  /// Microbatches that may not begin on this rank yet.
  [[nodiscard]] std::vector<int64_t> held() const;
  /// Keys of the tasks that wait, for a report on a hang.
  [[nodiscard]] std::vector<std::pair<WaitId, TaskKey>> waiting() const;
  /// The key of each run of a task, in order: what orders are planned from.
  [[nodiscard]] const std::vector<TaskKey>& recorded() const { return recorded_; }

  // --- Called by the running task ---

  /// Gives the run token back until complete(id). Throws TaskCancelled if the step has failed.
  void wait(WaitId id);

  /// Becomes one runnable task among the others again, in another phase; its next run is a new
  /// run.
  void yield(Phase phase);
  /// Sets the phase of the running task from now on.
  void enter(Phase phase);
  /// The running task, a forward, keeps nothing: no backward will come for it.
  void expect_no_backward() { end_forward(current().microbatch); }

  /// The running task's key. Must be called from a task.
  [[nodiscard]] const TaskKey& current() const;
  [[nodiscard]] bool in_task() const;

 private:
  class Worker;

  struct Task {
    TaskKey key;
    std::function<void()> body;
    Worker* worker = nullptr;  ///< since it began
  };

  /// What ends when so much of a microbatch's deferred work is done: a forward, or all of it.
  struct Kept {
    int64_t microbatch = 0;
    bool all = false;
    bool is_work = false;  ///< some of it was left by the backward that has ended last
    int64_t until = 0;
  };

  /// State of a microbatch on this rank in this step.
  struct MicrobatchState {
    int64_t before = 0;         ///< ranks that it was on before this one
    int64_t last_forward = -1;  ///< run
    int64_t left = 0;           ///< deferred work of the backwards that are over
    bool closed = false;        ///< nothing of it will begin any more
  };

  [[nodiscard]] bool admits(const Task& task) const;
  void begin(TaskKey& key);
  /// A forward of the microbatch has its backward behind it, or none will come.
  void end_forward(int64_t microbatch);
  /// Nothing of it will begin any more.
  void close(int64_t microbatch);
  void end_after_work(int64_t microbatch, bool all);
  [[nodiscard]] std::vector<Task*>::iterator pick();
  /// What the order has next, or, once it is overruled, first of what there is: a runnable task, or
  /// null for deferred work. None if there is no such work.
  [[nodiscard]] std::optional<Task*> next_in_order() const;
  /// Takes work that is done, or begins, out of the order.
  void strike(const PlannedWork& work);
  /// The next task to run, if there is one; counts its run.
  [[nodiscard]] Task* take();
  /// By the loop: runs `task` and what follows; returns with the run token.
  void resume(Task& task);
  /// By a worker's thread, with the run token: runs its task and what follows, then passes the run
  /// token.
  void lead(Worker& worker);
  void run(Worker& worker);
  /// After a run: the next task, or null if the run token goes back to the loop.
  [[nodiscard]] Task* next_task();
  void pause(Worker& worker, Worker& substitute);
  void drop(Task& task);
  [[nodiscard]] Worker& idle_worker();
  [[nodiscard]] Worker& running() const;

  const Schedule schedule_;
  const std::function<void()> thread_setup_;
  const std::function<void()> turn_setup_;
  const std::function<DeferredWork(int64_t)> deferred_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Worker*> idle_;  ///< without a task, and without the run token
  std::list<Task> tasks_;
  std::vector<Task*> runnable_;
  std::map<WaitId, Task*> waiting_;
  const Between* between_ = nullptr;
  std::exception_ptr failure_;  ///< for the loop
  int64_t arrivals_ = 0;
  Phase last_phase_ = Phase::kForward;
  bool cancelling_ = false;
  std::optional<std::deque<PlannedWork>> order_;  ///< what is left of it
  bool preferred_ = false;
  bool overruled_ = false;   ///< until work of the order has been done
  std::set<int64_t> ended_;  ///< microbatches of this step
  std::vector<Kept> kept_;
  int64_t recomputed_ = 0;  ///< deferred work of these that keeps recomputed activations
  OpenMicrobatches open_;
  std::map<int64_t, MicrobatchState> microbatches_;
  std::vector<TaskKey> recorded_;
  std::binary_semaphore loop_turn_{0};
};

}  // namespace smp::pipeline
