// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/engine.h"

#include <utility>

#include <ATen/ThreadLocalState.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/engine.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/pipeline/remote_call.h"

namespace smp::pipeline {
namespace {

/// Makes all nodes of a backward run on the calling thread, on any device. A node that waits for
/// another rank must stop nothing but its own microbatch.
class SingleThreadedBackward {
 public:
  SingleThreadedBackward() : previous_(state().get_multithreading_enabled()) {
    state().set_multithreading_enabled(false);
  }
  ~SingleThreadedBackward() { state().set_multithreading_enabled(previous_); }
  SingleThreadedBackward(const SingleThreadedBackward&) = delete;
  SingleThreadedBackward& operator=(const SingleThreadedBackward&) = delete;

 private:
  static c10::AutogradState& state() { return c10::AutogradState::get_tls_state(); }
  const bool previous_;
};

}  // namespace

Engine::Engine(std::unique_ptr<transport::Transport> transport, EngineOptions options)
    : transport_(std::move(transport)), options_(std::move(options)) {
  Executor& executor = *this;
  server_ = std::make_unique<Server>(*transport_, executor, options_.server);
  ledger_ = std::make_unique<GradientLedger>(
      options_.server.deterministic, [this] { return server_->microbatch(); },
      [this] { note_gradient(); });
}

Engine::~Engine() = default;

void Engine::track_parameters(const std::vector<at::Tensor>& parameters) {
  ledger_->track(parameters);
}

void Engine::drive(const std::string& kind, int64_t microbatches,
                   const std::function<void(int64_t)>& body,
                   const std::function<TensorTree()>& collect) {
  ledger_->reset();
  backwards_ = 0;
  const at::ThreadLocalState modes;
  server_->drive(
      kind, microbatches,
      [&](int64_t microbatch) {
        const at::ThreadLocalStateGuard guard(modes);
        body(microbatch);
      },
      [&] { return pack_call(CallModes::current(), collect(), Memory::kCopy); });
}

TensorTree Engine::serve() {
  ledger_->reset();
  backwards_ = 0;
  return unpack_call(server_->serve()).tree;
}

void Engine::require_step(const char* what) const {
  if (server_->microbatch() < 0) {
    throw UserCodeError("{} is possible only inside a function decorated with smp.step", what);
  }
}

// --- Calling ---

TensorTree Engine::call(const Route& route, TensorTree arguments) {
  require_step("a call to a module of another rank");
  RemoteInvocation invocation{.engine = this,
                              .route = route,
                              .modes = CallModes::current(),
                              .stub = std::move(arguments.stub),
                              .reply_stub = {}};
  if (!invocation.modes.grad_enabled) {
    Server::Reply reply = server_->call(route, pack_call(invocation.modes,
                                                         {.stub = std::move(invocation.stub),
                                                          .tensors = std::move(arguments.tensors)},
                                                         Memory::kShare));
    return unpack_call(std::move(reply.work)).tree;
  }
  const at::Tensor anchor = at::zeros({}, at::kFloat).requires_grad_();
  std::vector<at::Tensor> outputs =
      RemoteCall::apply(anchor, at::TensorList(arguments.tensors), &invocation);
  return {.stub = std::move(invocation.reply_stub), .tensors = std::move(outputs)};
}

void Engine::backward(const std::vector<at::Tensor>& tensors,
                      const std::vector<at::Tensor>& gradients, double scale) {
  require_step("model.backward");
  std::vector<at::Tensor> seeds;
  for (size_t index = 0; index < tensors.size(); ++index) {
    const at::Tensor& tensor = tensors[index];
    if (!tensor.requires_grad()) {
      throw UserCodeError(
          "model.backward: tensor {} of {} requires no gradient; was it detached, or computed "
          "under no_grad?",
          index, tensors.size());
    }
    if (gradients[index].defined()) {
      seeds.push_back(scale == 1.0 ? gradients[index] : gradients[index].mul(scale));
    } else if (tensor.numel() == 1) {
      seeds.push_back(at::full_like(tensor, scale));
    } else {
      throw UserCodeError(
          "model.backward: tensor {} has {} elements; give its gradient, or reduce it to one "
          "element",
          index, tensor.numel());
    }
  }
  server_->enter_backward();
  run_backward(tensors, seeds);
}

void Engine::run_backward(const std::vector<at::Tensor>& roots,
                          const std::vector<at::Tensor>& gradients) {
  torch::autograd::edge_list edges;
  torch::autograd::variable_list seeds;
  for (size_t index = 0; index < roots.size(); ++index) {
    if (!gradients[index].defined() || !roots[index].requires_grad()) continue;
    edges.push_back(torch::autograd::impl::gradient_edge(roots[index]));
    seeds.push_back(gradients[index]);
  }
  ++backwards_;
  if (edges.empty()) return;
  const SingleThreadedBackward guard;
  torch::autograd::Engine::get_default_engine().execute(edges, seeds, /*keep_graph=*/false,
                                                        /*create_graph=*/false,
                                                        /*accumulate_grad=*/true);
}

void Engine::note_gradient() {
  if (server_->microbatch() >= 0) {
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

Work Engine::forward(const CallId& id, int64_t target, Work request, bool passes_on) {
  CallBody call = unpack_call(std::move(request));
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
  TensorTree result = options_.run_module(target, std::move(call.tree), passes_on);
  if (call.modes.grad_enabled) {
    record.outputs = result.tensors;
    records_.insert_or_assign(id, std::move(record));
  }
  return pack_call(call.modes, std::move(result), Memory::kCopy);
}

Work Engine::backward(const CallId& id, Work gradients) {
  auto found = records_.extract(id);
  SMP_CHECK(!found.empty(), "microbatch {} has no call {:#x} to go back through", id.microbatch,
            id.call);
  Record record = std::move(found.mapped());
  run_backward(record.outputs, unpack_gradients(std::move(gradients)));
  std::vector<at::Tensor> results;
  for (const at::Tensor& input : record.inputs) {
    results.push_back(input.defined() ? input.grad() : at::Tensor());
  }
  return pack_gradients(results);
}

void Engine::release(int64_t microbatch) {
  if (microbatch < 0) {
    records_.clear();
    return;
  }
  std::erase_if(records_, [&](const auto& entry) { return entry.first.microbatch == microbatch; });
  ledger_->finish(microbatch);
}

std::string Engine::describe(const std::exception_ptr& error) {
  if (options_.describe) return options_.describe(error);
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return exception.what();
  }
}

}  // namespace smp::pipeline
