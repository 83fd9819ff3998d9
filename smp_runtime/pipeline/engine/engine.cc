// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/engine/engine.h"

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/engine.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"
#include "smp_runtime/cuda/stream_event.h"
#include "smp_runtime/pipeline/engine/remote_call.h"
#include "smp_runtime/pipeline/engine/stream_clock.h"
#include "smp_runtime/transport/error_text.h"

namespace smp::pipeline {
namespace {

thread_local bool in_backward = false;  ///< of the engine, not of torch.autograd.grad

/// Makes all nodes of a backward run on the calling thread, on any device. A node that waits for
/// another rank must stop nothing but its own microbatch.
class SingleThreadedBackward {
 public:
  SingleThreadedBackward()
      : multithreading_(state().get_multithreading_enabled()),
        outer_(std::exchange(in_backward, true)) {
    state().set_multithreading_enabled(false);
  }
  ~SingleThreadedBackward() {
    state().set_multithreading_enabled(multithreading_);
    in_backward = outer_;
  }
  SingleThreadedBackward(const SingleThreadedBackward&) = delete;
  SingleThreadedBackward& operator=(const SingleThreadedBackward&) = delete;

 private:
  static c10::AutogradState& state() { return c10::AutogradState::get_tls_state(); }
  const bool multithreading_;
  const bool outer_;
};

}  // namespace

Engine::Engine(std::unique_ptr<transport::Transport> transport, EngineOptions options)
    : transport_(std::move(transport)), options_(std::move(options)) {
  Executor& executor = *this;
  ServerOptions server = options_.server;
  // Not only around modules: what a thread sends behind one is recorded in its stream, too.
  server.turn_setup = [this] {
    try {
      if (step_stream_) cuda::use_stream(*step_stream_);
    } catch (const c10::Error&) {  // the device has failed: the next task says so
    }
  };
  if (options_.device) {
    server.timeline.device_clock = std::make_shared<StreamClock>(*options_.device);
    server.thread_setup = [device = *options_.device, also = std::move(server.thread_setup)] {
      if (also) also();
      c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
      // setDevice() does nothing where the device is current already. This binds the thread to its
      // context, without which cuBLAS warns.
      static_cast<void>(cuda::current_stream(device).query());
    };
  }
  server_ = std::make_unique<Server>(*transport_, executor, std::move(server));
  direct_ = std::make_unique<DirectExchange>(*server_, options_.direct);
  ledger_ = std::make_unique<GradientLedger>(
      options_.server.deterministic, [this] { return gradients_microbatch(); },
      [this] { note_gradient(); });
  if (options_.server.schedule == Schedule::kZeroBubble && transport_->size() > 1) {
    deferred_.emplace([this](torch::autograd::Node& node) { return ledger_->leaf(node); },
                      options_.saved_tensors);
  }
}

Engine::~Engine() = default;

void Engine::track_parameters(const std::vector<at::Tensor>& parameters) {
  ledger_->track(parameters);
}

void Engine::begin_step() {
  ledger_->reset();
  if (deferred_) deferred_->clear();
  backwards_ = 0;
  step_modes_ = std::make_unique<at::ThreadLocalState>();
  if (options_.device) step_stream_ = cuda::current_stream(*options_.device);
  activation_bytes_ = 0;
  if (options_.memory_in_use) bytes_before_ = options_.memory_in_use();
}

/// At the first backward most of the forwards that will be open at one time are: all of them
/// (simple), or those that fill the pipeline. Later, gradients would count as well.
void Engine::measure_activations() {
  if (!bytes_before_) return;
  const int64_t before = *std::exchange(bytes_before_, std::nullopt);
  activation_bytes_ = std::max<int64_t>(0, options_.memory_in_use() - before);
}

void Engine::drive(const std::string& kind, int64_t microbatches,
                   const std::function<void(int64_t)>& body,
                   const std::function<TensorTree()>& collect) {
  begin_step();
  server_->drive(
      kind, microbatches,
      [&](int64_t microbatch) {
        const at::ThreadLocalStateGuard guard(*step_modes_);
        body(microbatch);
        direct_->settle();
      },
      [&] {
        TensorTree result = collect();
        for (at::Tensor& tensor : result.tensors) tensor = direct_->data_of(tensor);
        return pack_call(CallModes::current(), std::move(result), Memory::kCopy);
      });
}

TensorTree Engine::serve() {
  begin_step();
  return unpack_call(server_->serve()).tree;
}

void Engine::require_step(const char* what) const {
  if (server_->microbatch() < 0) {
    throw UserCodeError("{}", advised(fmt::format("{} is possible only inside a step", what),
                                      Advice::kOutsideOfStep));
  }
}

void Engine::require_backward(const Route& route) const {
  require_step("the backward of a call to a module of another rank");
  if (in_backward) return;
  throw UserCodeError(
      "{}", advised(fmt::format("a backward that is not the step's own leads through a module of "
                                "rank {} of the pipeline group, and would use up what that rank "
                                "keeps for the step's",
                                route.front().owner),
                    Advice::kForeignBackward));
}

// --- Calling ---

TensorTree Engine::call(const Route& route, TensorTree arguments) {
  require_step("a call to a module of another rank");
  RemoteInvocation invocation{.engine = this,
                              .route = route,
                              .modes = CallModes::current(),
                              .definition = std::move(arguments.definition),
                              .reply_definition = {},
                              .plan = {}};
  TensorTree result;
  if (invocation.modes.grad_enabled) {
    const at::Tensor anchor = at::zeros({}, at::kFloat).requires_grad_();
    result.tensors = RemoteCall::apply(anchor, at::TensorList(arguments.tensors), &invocation);
    result.definition = std::move(invocation.reply_definition);
  } else {
    uint64_t call = 0;
    result = exchange(invocation, std::move(arguments.tensors), call).tree;
  }
  direct_->watch(invocation.plan, result.tensors);
  return result;
}

CallBody Engine::exchange(RemoteInvocation& invocation, std::vector<at::Tensor> arguments,
                          uint64_t& call) {
  DirectExchange::Plan& plan = invocation.plan = direct_->plan(invocation.route, arguments);
  Server::Reply reply = server_->call(
      invocation.route,
      pack_call(invocation.modes,
                {.definition = std::move(invocation.definition), .tensors = std::move(arguments)},
                Memory::kShare, plan.absent),
      plan.direct);
  call = reply.call;
  CallBody body = unpack_call(std::move(reply.data));
  direct_->fill(plan, invocation.route, body);
  return body;
}

void Engine::keep_arguments(uint64_t call, const DirectExchange::Plan& plan) {
  if (std::ranges::all_of(plan.remote, [](const auto& remote) { return remote == nullptr; }))
    return;
  arguments_[{.microbatch = server_->microbatch(), .call = call}] = plan.remote;
}

std::vector<at::Tensor> Engine::exchange_backward(const Route& route, uint64_t call,
                                                  std::vector<at::Tensor> gradients) {
  const auto kept = arguments_.extract({.microbatch = server_->microbatch(), .call = call});
  const auto arguments = kept.empty() ? decltype(arguments_)::mapped_type{} : kept.mapped();
  Absent absent;
  const DirectValues direct = direct_->plan_backward(gradients, absent, arguments);
  GradientBody reply = unpack_gradients(
      server_->call_backward(route, call, pack_gradients(gradients, absent), direct));
  direct_->fill_backward(reply, direct, arguments);
  return std::move(reply.tensors);
}

at::Tensor Engine::data_of(const at::Tensor& tensor) {
  const at::Tensor data = direct_->data_of(tensor);
  const bool differentiable = at::GradMode::is_enabled() && tensor.requires_grad();
  return direct_->stands_in(tensor) && differentiable ? with_gradient_of(tensor, data) : data;
}

void Engine::backward(const std::vector<at::Tensor>& tensors,
                      const std::vector<at::Tensor>& gradients, double scale, bool keep_graph) {
  require_step("a backward of the model");
  std::vector<at::Tensor> seeds;
  for (size_t index = 0; index < tensors.size(); ++index) {
    const at::Tensor& tensor = tensors[index];
    if (!tensor.requires_grad()) {
      throw UserCodeError(
          "tensor {} of {} that the model's backward is to begin with requires no gradient; was it "
          "detached, or computed under no_grad?",
          index, tensors.size());
    }
    if (gradients[index].defined()) {
      seeds.push_back(scale == 1.0 ? gradients[index] : gradients[index].mul(scale));
    } else if (tensor.numel() == 1) {
      seeds.push_back(at::full(tensor.sizes(), scale, tensor.options()));  // no look at its data
    } else {
      throw UserCodeError(
          "tensor {} that the model's backward is to begin with has {} elements; give its "
          "gradient, "
          "or reduce it to one element",
          index, tensor.numel());
    }
  }
  server_->enter_backward();
  run_backward(tensors, seeds, keep_graph);
}

void Engine::run_backward(const std::vector<at::Tensor>& roots,
                          const std::vector<at::Tensor>& gradients, bool keep_graph) {
  measure_activations();
  torch::autograd::edge_list edges;
  torch::autograd::variable_list seeds;
  for (size_t index = 0; index < roots.size(); ++index) {
    if (!gradients[index].defined() || !roots[index].requires_grad()) continue;
    edges.push_back(torch::autograd::impl::gradient_edge(roots[index]));
    seeds.push_back(gradients[index]);
  }
  ++backwards_;
  if (edges.empty()) return;
  DeferredGradients::Works left;
  const auto not_later = [this](std::string_view why) { say_not_later(why); };
  if (deferred_ && keep_graph) {
    not_later("the graph is kept for another backward");
  } else if (deferred_ && defers_) {
    left = deferred_->split(server_->microbatch(), edges, not_later);
  }
  const SingleThreadedBackward guard;
  torch::autograd::Engine::get_default_engine().execute(edges, seeds, keep_graph,
                                                        /*create_graph=*/false,
                                                        /*accumulate_grad=*/true);
  DeferredGradients::check(left);
}

void Engine::say_not_later(std::string_view why) {
  if (!said_not_later_.insert(std::string(why)).second) return;
  const TaskKey* task = server_->task();
  const auto& name_of = options_.server.target_name;
  SMP_LOG(
      info,
      "pipeline zero_bubble: gradients of parameters of {} are computed with their backward, "
      "not while the rank waits: {}; this is said once for all modules",
      task != nullptr && task->target >= 0 && name_of ? name_of(task->target) : "the step function",
      why);
}

DeferredWork Engine::deferred(int64_t microbatch) const {
  return deferred_ ? deferred_->of(microbatch) : DeferredWork{};
}

std::optional<int64_t> Engine::run_deferred() {
  if (!deferred_ || !deferred_->next()) return std::nullopt;
  deferring_ = deferred_->next();
  try {
    const at::ThreadLocalStateGuard modes(*step_modes_);
    const SingleThreadedBackward guard;
    deferred_->run_next();
  } catch (...) {
    deferring_.reset();
    throw;
  }
  const int64_t microbatch = *std::exchange(deferring_, std::nullopt);
  if (deferred(microbatch).is_done() && released_.erase(microbatch) > 0) {
    ledger_->finish(microbatch);
  }
  return microbatch;
}

void Engine::complete_gradients() {
  if (!deferred_ || !deferred_->next() || microbatch() < 0) return;
  defers_ = false;
  say_not_later("the step looks at gradients, of which all are to be there");
  while (run_deferred()) continue;
}

int64_t Engine::gradients_microbatch() const {
  return deferring_ ? *deferring_ : server_->microbatch();
}

void Engine::note_gradient() {
  if (gradients_microbatch() >= 0) {
    ++backwards_;
  } else if (options_.after_backward_outside && !std::exchange(backward_outside_, true)) {
    torch::autograd::Engine::get_default_engine().queue_callback([this] {
      backward_outside_ = false;
      options_.after_backward_outside();
    });
  }
}

int64_t Engine::take_backwards() { return std::exchange(backwards_, 0); }

// --- Serving ---

CallData Engine::forward(const CallId& id, int64_t target, CallData request,
                         const Purpose& purpose) {
  CallBody call = unpack_call(std::move(request));
  const at::ThreadLocalStateGuard step_guard(*step_modes_);
  const CallModes::Guard guard(call.modes);
  Record record;
  if (call.modes.grad_enabled) {
    for (size_t index = 0; index < call.requires_grad.size(); ++index) {
      record.inputs.emplace_back();
      if (!call.requires_grad[index]) continue;
      record.inputs.back() = call.tree.tensors[index].requires_grad_();
      call.tree.tensors[index] = CallInput::apply(record.inputs.back());
    }
  }
  TensorTree result = options_.run_module(target, std::move(call.tree), purpose.passes_on);
  if (call.modes.grad_enabled) {
    record.outputs = result.tensors;
    records_.insert_or_assign(id, std::move(record));
  }
  direct_->settle();
  const bool has_gradient = std::ranges::any_of(
      result.tensors, [](const at::Tensor& tensor) { return tensor.requires_grad(); });
  Absent absent;
  auto values = direct_->keep_outputs(purpose.outputs_kept, result.tensors, absent);
  for (at::Tensor& tensor : result.tensors) {
    if (!direct_->stands_in(tensor)) continue;
    tensor = direct_->data_of(tensor).detach().requires_grad_(tensor.requires_grad());
  }
  CallData reply = pack_call(call.modes, std::move(result), Memory::kCopy, absent);
  reply.values = std::move(values);
  // A result that is passed on may get its backward from a later hop.
  reply.final = !call.modes.grad_enabled || !(purpose.passes_on || has_gradient);
  return reply;
}

CallData Engine::backward(const CallId& id, CallData gradients, const Purpose& purpose) {
  auto found = records_.extract(id);
  SMP_CHECK(!found.empty(), "microbatch {} has no call {:#x} to go back through", id.microbatch,
            id.call);
  Record record = std::move(found.mapped());
  run_backward(record.outputs, unpack_gradients(std::move(gradients)).tensors,
               /*keep_graph=*/false);
  std::vector<at::Tensor> results;
  for (const at::Tensor& input : record.inputs) {
    results.push_back(input.defined() ? input.grad() : at::Tensor());
  }
  Absent absent;
  auto values = direct_->keep_outputs(purpose.outputs_kept, results, absent);
  CallData reply = pack_gradients(results, absent);
  reply.values = std::move(values);
  return reply;
}

void Engine::release(int64_t microbatch) {
  if (microbatch < 0) {
    records_.clear();
    arguments_.clear();
    direct_->clear();
    if (deferred_) deferred_->clear();
    released_.clear();
    return;
  }
  std::erase_if(records_, [&](const auto& entry) { return entry.first.microbatch == microbatch; });
  std::erase_if(arguments_,
                [&](const auto& entry) { return entry.first.microbatch == microbatch; });
  direct_->release(microbatch);
  if (deferred(microbatch).is_done()) {
    ledger_->finish(microbatch);
  } else {
    released_.insert(microbatch);
  }
}

std::string Engine::describe(const std::exception_ptr& error) {
  return options_.describe ? options_.describe(error) : transport::error_text(error);
}

}  // namespace smp::pipeline
