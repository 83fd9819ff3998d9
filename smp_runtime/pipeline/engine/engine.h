// SPDX-License-Identifier: Apache-2.0
// The pipeline engine of one rank over tensors: calls to modules of other ranks, forward and
// backward, as one differentiable operation each.
//
// A remote call is an autograd node whose backward asks the owner for the gradients and waits, on
// the thread of its microbatch. Autograd counts dependencies as in one process, so
// residual links, shared modules and unused outputs need no code of ours.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/ThreadLocalState.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include "smp_runtime/pipeline/engine/call_body.h"
#include "smp_runtime/pipeline/engine/deferred_gradients.h"
#include "smp_runtime/pipeline/engine/direct_exchange.h"
#include "smp_runtime/pipeline/engine/gradient_ledger.h"
#include "smp_runtime/pipeline/server.h"
#include "smp_runtime/transport/transport.h"

namespace smp::pipeline {

/// Calls a module of this rank. Runs on a task thread, under the caller's modes. With `passes_on`
/// the result is given as the arguments of a call whose only argument it is.
using ModuleRunner =
    std::function<TensorTree(int64_t module, TensorTree arguments, bool passes_on)>;

struct EngineOptions {
  ServerOptions server;
  ModuleRunner run_module;
  /// Device on which modules compute, if not the CPU: the current device of tasks, which use the
  /// stream there that was the current one of the thread that began the step.
  std::optional<c10::Device> device;
  /// An error as text for other ranks; empty: transport::error_text().
  std::function<std::string(const std::exception_ptr&)> describe;
  /// Bytes that this rank has allocated, for activation_bytes(); may be empty.
  std::function<int64_t()> memory_in_use;
  /// Called at the end of a backward that gave tracked parameters gradients outside a step.
  std::function<void()> after_backward_outside;
  DirectOptions direct;
  /// Of nodes of Python's functions; may be empty.
  DeferredGradients::Saved saved_tensors;
};

struct RemoteInvocation;

/// drive(), serve(), call(), data_of() and backward() block and run user code: not to be called
/// with Python's lock held.
class Engine : private Executor {
 public:
  Engine(std::unique_ptr<transport::Transport> transport, EngineOptions options);
  ~Engine() override;

  /// The parameters on this rank; under `deterministic` their gradients are added in order.
  void track_parameters(const std::vector<at::Tensor>& parameters);

  /// Rank 0: see Server::drive. The body runs under the caller's thread-local modes.
  void drive(const std::string& kind, int64_t microbatches,
             const std::function<void(int64_t)>& body, const std::function<TensorTree()>& collect);
  /// Other ranks: see Server::serve.
  TensorTree serve();

  /// From the body or a module: calls the modules of `route` one after the other, each with the
  /// result of the one before it. Differentiable in the arguments. Throws UserCodeError outside a
  /// step.
  TensorTree call(const Route& route, TensorTree arguments);

  /// From the body or a module: what a result of call() that stands in for one elsewhere is in
  /// full, with its gradient; any other tensor as it is. See direct_exchange.h.
  at::Tensor data_of(const at::Tensor& tensor);

  /// From the body: backpropagates from `tensors`. An undefined gradient stands for 1, times
  /// `scale`; a given one is multiplied by it. `keep_graph` keeps this rank's graph for another
  /// backward; what modules of other ranks have is gone. Throws UserCodeError for a tensor that is
  /// not a scalar and has no gradient, and outside a step.
  void backward(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& gradients,
                double scale, bool keep_graph = false);

  /// From the body or a module, before it looks at gradients of parameters: computes those that
  /// backwards of this rank have left for later. If there were any, none are left from now on.
  void complete_gradients();

  /// More than 0 if any backward ran on this rank since the last call of this function or the
  /// beginning of the step.
  int64_t take_backwards();

  /// Growth of memory in use from the beginning of the last step to this rank's first backward in
  /// it: the activations that forwards keep for their backwards. 0 after a step without a backward.
  [[nodiscard]] int64_t activation_bytes() const { return activation_bytes_; }

  /// See Server.
  [[nodiscard]] const StepUse& last_step() const { return server_->last_step(); }
  [[nodiscard]] std::optional<StepShares> group_use() const { return server_->group_use(); }

  /// The microbatch that the calling thread works for, -1 for none.
  [[nodiscard]] int64_t microbatch() const { return server_->microbatch(); }

 private:
  friend class RemoteCall;
  /// State that the owner of a call keeps between forward and backward.
  struct Record {
    std::vector<at::Tensor> inputs;  ///< leaves; undefined where no gradient is wanted
    std::vector<at::Tensor> outputs;
  };

  CallData forward(const CallId& id, int64_t target, CallData request,
                   const Purpose& purpose) override;
  CallData backward(const CallId& id, CallData gradients, const Purpose& purpose) override;
  void release(int64_t microbatch) override;
  std::optional<int64_t> run_deferred() override;
  [[nodiscard]] DeferredWork deferred(int64_t microbatch) const override;
  std::string describe(const std::exception_ptr& error) override;
  /// The caller's half of a call, and of its backward: what RemoteCall's two ends have in common
  /// with calls without gradient.
  CallBody exchange(RemoteInvocation& invocation, std::vector<at::Tensor> arguments,
                    uint64_t& call);
  std::vector<at::Tensor> exchange_backward(const Route& route, uint64_t call,
                                            std::vector<at::Tensor> gradients);
  /// Until the backward of a call needs to know which of its arguments were remote tensors.
  void keep_arguments(uint64_t call, const DirectExchange::Plan& plan);
  void begin_step();
  void run_backward(const std::vector<at::Tensor>& roots, const std::vector<at::Tensor>& gradients,
                    bool keep_graph);
  /// Tells the log, once for each reason, that the running task's gradients are not deferred.
  void say_not_later(std::string_view why);
  /// The microbatch whose gradients the calling thread computes; -1 for none.
  [[nodiscard]] int64_t gradients_microbatch() const;
  void measure_activations();
  void require_step(const char* what) const;
  /// Throws UserCodeError in a backward that is none of this engine, such as torch.autograd.grad in
  /// a forward: it would use up what the owner keeps, and add to its parameters' gradients.
  void require_backward(const Route& route) const;
  /// A tracked parameter is about to get a gradient.
  void note_gradient();

  std::unique_ptr<transport::Transport> transport_;
  const EngineOptions options_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<GradientLedger> ledger_;
  std::optional<DeferredGradients> deferred_;
  bool defers_ = true;                ///< false once the step has looked at gradients
  std::optional<int64_t> deferring_;  ///< microbatch of the deferred work under way
  std::set<int64_t> released_;        ///< microbatches that only wait for deferred work
  std::set<std::string, std::less<>> said_not_later_;
  std::unique_ptr<at::ThreadLocalState> step_modes_;  ///< of the thread that began the step
  std::optional<c10::Stream> step_stream_;            ///< the same thread's; none on the CPU
  std::unique_ptr<DirectExchange> direct_;
  std::map<CallId, std::vector<std::shared_ptr<DirectExchange::Remote>>> arguments_;
  std::map<CallId, Record> records_;  // touched by the holder of the run token only
  int64_t backwards_ = 0;
  std::optional<int64_t> bytes_before_;  ///< in use when the step began, until they are compared
  int64_t activation_bytes_ = 0;
  bool backward_outside_ = false;
};

}  // namespace smp::pipeline
