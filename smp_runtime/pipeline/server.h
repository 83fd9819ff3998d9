// SPDX-License-Identifier: Apache-2.0
// The execution server of one rank of a pipeline group: serves calls to the modules placed on it,
// and on rank 0, the driver, runs the body of the step, once per microbatch.
//
// Design: a call to a module of another rank sends a request and pauses its microbatch; the rank
// goes on with another one (arXiv:2111.05972). CallData is opaque here: the Executor knows what it
// means. Calls that its tasks make are in server_calls.cc, the order of work in server_order.cc,
// failures in server_failure.cc.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "smp_runtime/core/deadline.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/pipeline/envelope.h"
#include "smp_runtime/pipeline/payload_dictionary.h"
#include "smp_runtime/pipeline/recorded_run.h"
#include "smp_runtime/pipeline/scheduler.h"
#include "smp_runtime/pipeline/step_order.h"
#include "smp_runtime/pipeline/timeline.h"
#include "smp_runtime/pipeline/value_exchange.h"
#include "smp_runtime/transport/transport.h"

namespace smp::pipeline {

/// Input or result of a call.
struct CallData {
  std::string body;
  std::shared_ptr<transport::Payload> payload;
  /// Inputs of a request, in its order, or outputs of a result that are kept.
  ValueExchange::Named values = {};
  bool final = false;  ///< of a forward's result: no backward will come for it
};

/// The tensors of a call that do not travel over its caller.
struct DirectValues {
  std::vector<ValueId> inputs;  ///< of the request; the rank that serves it first waits for them
  std::vector<KeptOutput> outputs_kept;  ///< of the result
};

struct CallId {
  int64_t microbatch = 0;
  uint64_t call = 0;
  int hop = 0;  ///< a route may pass through a rank more than once

  auto operator<=>(const CallId&) const = default;
};

/// Runs calls for other ranks. forward() and backward() run on task threads, one at a time, and may
/// themselves call() and so pause; describe() runs outside tasks.
class Executor {
 public:
  virtual ~Executor() = default;
  /// Use of a call's result.
  struct Purpose {
    bool passes_on = false;  ///< it is the request of the route's next hop
    std::span<const KeptOutput> outputs_kept;
  };
  /// Calls `target`; keeps what backward() of the same id will need. A hop that passes its result
  /// on gets the gradients from the backward() of the next one.
  virtual CallData forward(const CallId& id, int64_t target, CallData request,
                           const Purpose& purpose) = 0;
  /// The gradients of a call's inputs, from those of its outputs.
  virtual CallData backward(const CallId& id, CallData gradients, const Purpose& purpose) = 0;
  /// Drops all that is kept for the microbatch, but deferred work.
  virtual void release(int64_t microbatch) = 0;
  /// Does a piece of work that backwards have left for a time when this rank would wait; outside
  /// tasks. Returns its microbatch; none if there is no such work.
  virtual std::optional<int64_t> run_deferred() { return std::nullopt; }
  /// Such work of the microbatch.
  [[nodiscard]] virtual DeferredWork deferred(int64_t /*microbatch*/) const { return {}; }
  /// An error as text for the other ranks, e.g. a Python traceback.
  virtual std::string describe(const std::exception_ptr& error) = 0;
};

struct ServerOptions {
  Schedule schedule = Schedule::kInterleaved;
  int64_t active_microbatches = 1;  ///< begun and unfinished at one time; unbounded under kSimple
  double memory = 1;                ///< ScheduleShape::memory
  bool deterministic = false;       ///< order of work independent of arrival times
  /// With `deterministic`: ranks of other groups, which run the same step, work in the same order,
  /// because theirs meet ours in collectives. It is never left; a step that cannot keep it fails.
  bool shared_order = false;
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};  ///< without any progress
  std::string name = "rank 0";  ///< who speaks, in errors that reach other ranks
  std::function<void()> thread_setup;
  std::function<void()> turn_setup;  ///< the engine's; both as the Scheduler's
  /// Called about once a second while the loop's thread waits; may throw to end the step, as a
  /// signal handler of the user does.
  std::function<void()> check_interrupt;
  std::function<std::string(int64_t)> target_name;  ///< for reports; may be empty
  TimelineOptions timeline;

  /// Of a step, but for the number of its microbatches.
  [[nodiscard]] schedule::ScheduleShape shape() const {
    return {.active_microbatches = active_microbatches, .schedule = schedule, .memory = memory};
  }
};

/// The failure of another rank, which has told all ranks of it.
class RemoteFailure : public UserCodeError {
  using UserCodeError::UserCodeError;
};

class Server {
 public:
  /// `transport` and `executor` must outlive the server.
  Server(transport::Transport& transport, Executor& executor, ServerOptions options);

  /// Rank 0: runs `body(microbatch)` for each microbatch, then `collect()`, whose result all ranks
  /// get from their serve(). Blocks until the step is over on this rank.
  /// Throws what the body threw; UserCodeError with the other rank's text if another rank failed;
  /// HostError if nothing moved for `timeout` or a peer was lost. After a throw the server can run
  /// another step if the others can.
  /// `kind` names steps that are expected to call the same modules, for the order of work.
  void drive(const std::string& kind, int64_t microbatches,
             const std::function<void(int64_t)>& body, const std::function<CallData()>& collect);

  /// Ranks other than 0: serves until the driver ends the step; returns what it collected.
  /// Throws as drive() does.
  CallData serve();

  struct Reply {
    uint64_t call = 0;
    CallData data;
  };
  /// From a task: sends `request` through `route` and pauses until the result of its last hop is
  /// here. Only inside drive or serve.
  Reply call(const Route& route, CallData request, DirectValues direct = {});
  /// From a task: has the route run the backward of a call made before in this microbatch.
  CallData call_backward(const Route& route, uint64_t call, CallData gradients,
                         DirectValues direct = {});

  /// A name for an output that a call of this rank has kept elsewhere.
  [[nodiscard]] ValueId new_value() { return new_id(); }
  /// From a task: has `holder` send a value to `destination`, which a call of this rank will need.
  void send_value(int holder, ValueId id, int destination);
  /// From a task: waits until the value is here. Keeps the run token, so that the order of runs
  /// does not depend on which values are fetched; messages are handled meanwhile.
  std::shared_ptr<transport::Payload> fetch(int holder, ValueId id);
  /// Nobody will ask `holder` for the value again. The holder learns of it with the next message.
  void release_value(int holder, ValueId id) { values_.release(holder, id); }
  /// From the body: what follows is backward work. Pauses under kSimple, until forwards are done.
  void enter_backward();

  /// The running task; null outside tasks, as in a group of one rank.
  [[nodiscard]] const TaskKey* task() const {
    return scheduler_.in_task() ? &scheduler_.current() : nullptr;
  }
  /// The microbatch of the running task, or -1 outside a step.
  [[nodiscard]] int64_t microbatch() const;

  /// This rank's use of the last step that ended well.
  [[nodiscard]] const StepUse& last_step() const { return last_step_; }
  /// Rank 0: mean of the group's shares; of the last step here and of the one before it elsewhere,
  /// for the others' word arrives during the next step. Where a device computes, of the last steps
  /// that are done there; none before the first one.
  [[nodiscard]] std::optional<StepShares> group_use() const;

 private:
  struct Awaited {
    Route route;
    Phase phase;
  };

  void begin_step(const std::string& kind, int64_t microbatches);
  void follow(const RankOrder& order);
  void run_body(int64_t microbatch, const std::function<void(int64_t)>& body);
  /// Every message that arrives, in that order.
  [[nodiscard]] Envelope opened(transport::Message message);
  void handle(Envelope envelope);
  /// Begins what a message asks for: the values that it takes are here.
  void take_up(Envelope envelope);
  [[nodiscard]] uint64_t new_id() {
    return static_cast<uint64_t>(transport_.rank()) << 40 | ++ids_;
  }
  void start_task(Envelope envelope);
  void pass_on(Envelope request, CallData result);
  void finish_reply(Envelope envelope);
  /// Runs tasks and handles messages until `over()` and nothing is left to run.
  void loop(const std::function<bool()>& over);
  /// Handles what has arrived, and what comes while it spins; returns `over()`. Between two runs
  /// it is called on a task thread, outside any task.
  bool look(const std::function<bool()>& over);
  /// Runs tasks until there is none, and notes when. False if there was none.
  bool run_tasks(const std::function<bool()>& over);
  /// Does a piece of deferred work; false if there is none.
  bool run_deferred();
  /// Waits a moment for a backward that is due where a forward would go before it.
  void spin();
  /// Waits for a message and handles it, or for the planned order to prove wrong, or late.
  void wait_for_message();
  std::optional<transport::Message> receive(Clock::time_point deadline);
  [[nodiscard]] std::string name_of(int64_t target) const;
  void drop_order();
  CallData request(Kind kind, const Route& route, uint64_t call, CallData data,
                   DirectValues direct);
  /// As a message of this step.
  void send(int destination, Envelope envelope);
  /// For what the driver is glad to know and can do without.
  void tell_driver(Envelope envelope);
  void send_to_peers(const Envelope& envelope);
  /// Runs `step`; on an error tells the others, unless they told us, and unwinds.
  void guarded(const std::function<void()>& step);
  /// Reason of failure that a peer gave before it left, if any. It lies in front of the peer's FIN,
  /// but we may learn of the FIN first, by sending to the peer.
  std::optional<std::string> failure_told();
  void unwind();
  /// This rank's waits, as a hang report has them.
  [[nodiscard]] std::string waits() const;
  /// Throws HostError that says what the ranks of the group wait for.
  [[noreturn]] void fail_as_hung();
  [[nodiscard]] bool driver() const { return transport_.rank() == 0; }

  transport::Transport& transport_;
  Executor& executor_;
  const ServerOptions options_;
  Scheduler scheduler_;
  StepOrder step_order_;  ///< the driver's
  PayloadDictionary bodies_;
  Timeline timeline_;
  StepUse last_step_;
  std::map<int, StepShares> peers_use_;  ///< the driver's: by rank

  // State of the step in progress:
  int64_t step_ = 0;
  bool begun_ = false;  ///< its order is known; until then nothing may run
  OrderMode order_ = OrderMode::kFree;
  std::chrono::microseconds patience_{0};
  std::optional<Clock::time_point> waits_since_;  ///< for what a preferred order has next
  RunTimes times_;                                ///< under kTimed
  int64_t started_ = 0;
  int64_t finished_ = 0;
  int64_t ended_ = -1;              ///< a microbatch whose body ended since the loop last looked
  int64_t inline_microbatch_ = -1;  ///< of a group of one rank, which needs no tasks
  bool send_failed_ = false;
  uint64_t ids_ = 0;  ///< of calls and values
  ValueExchange values_;
  std::optional<std::string> aborted_;  ///< why, as another rank told us during a fetch
  std::map<Scheduler::WaitId, Awaited> awaited_;
  std::map<Scheduler::WaitId, CallData> replies_;
  std::vector<Envelope> early_;  ///< of steps that this rank has not begun
  std::unique_ptr<CallData> result_;
};

}  // namespace smp::pipeline
