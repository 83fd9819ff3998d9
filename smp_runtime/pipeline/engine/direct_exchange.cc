// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/engine/direct_exchange.h"

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "smp_runtime/core/error.h"

namespace smp::pipeline {

/// A call in a module's code, and what is known of its results.
struct DirectExchange::Site {
  enum class Way { kUnknown, kDirect, kOverCaller };
  struct Output {
    Way way = Way::kUnknown;
    int user = -1;  ///< of kDirect: the rank that gets it
  };
  Output& output(size_t index) {
    if (index >= outputs.size()) outputs.resize(index + 1);
    return outputs[index];
  }
  std::vector<Output> outputs;
};

/// The value behind a remote tensor.
struct DirectExchange::Remote {
  int holder = -1;
  ValueId id = 0;
  transport::TensorMeta meta;
  int sent_to = -1;  ///< a rank that has it, or will, for one use
  Site* site = nullptr;
  size_t output = 0;
  int64_t microbatch = 0;
  int depth = 0;  ///< of the task that holds the remote tensor
  Weak tensor = Weak(c10::intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>());
  int uses = 0;  ///< as an argument
  bool gone = false;
  at::Tensor data;  ///< once somebody has looked at it
};

DirectExchange::DirectExchange(Server& server, DirectOptions options)
    : server_(server), options_(std::move(options)) {}

DirectExchange::~DirectExchange() = default;

// --- Forward ---

DirectExchange::Plan DirectExchange::plan(const Route& route, std::vector<at::Tensor>& arguments) {
  Plan plan;
  const TaskKey* task = server_.task();
  if (!options_.make_remote_tensor || task == nullptr) return plan;
  forget_unused();
  const int64_t target = route.back().target;
  const int64_t before = calls_[{task->microbatch, task->target, target}]++;
  auto& site = sites_[{task->target, target, before, at::GradMode::is_enabled()}];
  if (!site) site = std::make_unique<Site>();
  plan.site = site.get();
  for (size_t index = 0; index < site->outputs.size(); ++index) {
    const Site::Output& output = site->outputs[index];
    if (output.way != Site::Way::kDirect) continue;
    plan.direct.outputs_kept.push_back({.output = static_cast<int32_t>(index),
                                        .destination = output.user,
                                        .id = server_.new_value()});
  }

  const int user = route.front().owner;
  for (at::Tensor& argument : arguments) {
    plan.remote.push_back(find(argument));
    plan.absent.push_back(false);
    const auto& remote = plan.remote.back();
    if (!remote) {
      const auto watched = watched_.find(argument.unsafeGetTensorImpl());
      if (watched == watched_.end()) continue;
      ++watched->second.uses;
      watched->second.user = user;
      continue;
    }
    ++remote->uses;
    if (remote->data.defined()) {
      argument = remote->data.detach().requires_grad_(argument.requires_grad());
      continue;
    }
    plan.absent.back() = true;
    plan.direct.inputs.push_back(remote->id);
    if (remote->sent_to == user) {
      remote->sent_to = -1;
    } else if (remote->holder != user) {
      server_.send_value(remote->holder, remote->id, user);
    }
  }
  return plan;
}

void DirectExchange::fill(const Plan& plan, const Route& route, CallBody& reply) {
  const TaskKey* task = server_.task();
  for (const KeptOutput& wish : plan.direct.outputs_kept) {
    const auto index = static_cast<size_t>(wish.output);
    if (index >= reply.absent.size() || !reply.absent[index]) continue;
    const int holder = route.back().owner;
    reply.tree.tensors[index] =
        remote_tensor({.holder = holder,
                       .id = wish.id,
                       .meta = *reply.absent[index],
                       .sent_to = wish.destination == holder ? -1 : wish.destination,
                       .site = plan.site,
                       .output = index,
                       .microbatch = task->microbatch,
                       .depth = task->depth});
  }
}

void DirectExchange::watch(const Plan& plan, const std::vector<at::Tensor>& results) {
  if (plan.site == nullptr) return;
  for (size_t index = 0; index < results.size(); ++index) {
    const at::Tensor& result = results[index];
    if (plan.site->output(index).way != Site::Way::kUnknown || find(result) ||
        static_cast<int64_t>(result.nbytes()) < options_.min_bytes) {
      continue;
    }
    watched_.insert_or_assign(result.unsafeGetTensorImpl(),
                              Watched{.tensor = Weak(result.getIntrusivePtr()),
                                      .microbatch = server_.microbatch(),
                                      .site = plan.site,
                                      .output = index});
  }
}

// --- Backward ---

DirectValues DirectExchange::plan_backward(std::vector<at::Tensor>& gradients, Absent& absent,
                                           const std::vector<std::shared_ptr<Remote>>& arguments) {
  DirectValues direct;
  for (at::Tensor& gradient : gradients) {
    absent.push_back(false);
    const auto remote = gradient.defined() ? find(gradient) : nullptr;
    if (!remote) continue;
    if (remote->data.defined()) {
      gradient = remote->data;
      continue;
    }
    absent.back() = true;
    direct.inputs.push_back(remote->id);
    remote->gone = true;
  }
  for (size_t index = 0; index < arguments.size(); ++index) {
    const auto& argument = arguments[index];
    // Gradients of several uses come here, where they are added.
    if (!argument || argument->uses != 1 || argument->data.defined()) continue;
    direct.outputs_kept.push_back({.output = static_cast<int32_t>(index),
                                   .destination = argument->holder,
                                   .id = server_.new_value()});
  }
  return direct;
}

void DirectExchange::fill_backward(GradientBody& reply, const DirectValues& direct,
                                   const std::vector<std::shared_ptr<Remote>>& arguments) {
  const TaskKey* task = server_.task();
  for (const KeptOutput& wish : direct.outputs_kept) {
    const auto index = static_cast<size_t>(wish.output);
    if (!reply.absent.at(index)) continue;
    reply.tensors[index] = remote_tensor({.holder = wish.destination,
                                          .id = wish.id,
                                          .meta = arguments[index]->meta,
                                          .microbatch = task->microbatch,
                                          .depth = task->depth});
  }
}

// --- Remote tensors ---

std::shared_ptr<DirectExchange::Remote> DirectExchange::find(const at::Tensor& tensor) {
  const auto found = remotes_.find(tensor.unsafeGetTensorImpl());
  return found == remotes_.end() ? nullptr : found->second;
}

at::Tensor DirectExchange::remote_tensor(Remote remote) {
  at::Tensor tensor = options_.make_remote_tensor(remote.meta);
  // As long as this is kept, no other tensor gets the address.
  remote.tensor = Weak(tensor.getIntrusivePtr());
  remotes_[tensor.unsafeGetTensorImpl()] = std::make_shared<Remote>(std::move(remote));
  return tensor;
}

bool DirectExchange::stands_in(const at::Tensor& tensor) {
  return tensor.defined() && find(tensor) != nullptr;
}

decltype(CallData::values) DirectExchange::keep_outputs(std::span<const KeptOutput> wishes,
                                                        const std::vector<at::Tensor>& tensors,
                                                        Absent& absent) {
  absent.assign(tensors.size(), false);
  decltype(CallData::values) values;
  for (const KeptOutput& wish : wishes) {
    const auto index = static_cast<size_t>(wish.output);
    if (index >= tensors.size() || !tensors[index].defined() || stands_in(tensors[index])) continue;
    absent[index] = true;
    values.emplace_back(wish.id, payload_of_value(tensors[index]));
  }
  return values;
}

at::Tensor DirectExchange::data_of(const at::Tensor& tensor) {
  const auto remote = tensor.defined() ? find(tensor) : nullptr;
  if (!remote) return tensor;
  if (!remote->data.defined()) fetch(remote);
  return remote->data;
}

void DirectExchange::fetch(const std::shared_ptr<Remote>& remote) {
  const TaskKey* task = server_.task();
  if (remote->gone || task == nullptr || task->microbatch != remote->microbatch) {
    throw UserCodeError(
        "the data of a tensor that a module of rank {} of the pipeline group returned in "
        "microbatch {} are gone; look at it in the function that called the module",
        remote->holder, remote->microbatch);
  }
  if (remote->site != nullptr) {
    remote->site->output(remote->output).way = Site::Way::kOverCaller;
  }
  remote->data = take_value(server_.fetch(remote->holder, remote->id));
}

void DirectExchange::settle() {
  const TaskKey* task = server_.task();
  if (task == nullptr) return;
  std::vector<std::shared_ptr<Remote>> used;
  for (const auto& [impl, remote] : remotes_) {
    if (remote->microbatch == task->microbatch && remote->depth == task->depth && !remote->gone &&
        !remote->data.defined() && !remote->tensor.expired()) {
      used.push_back(remote);
    }
  }
  for (const auto& remote : used) fetch(remote);
}

void DirectExchange::forget_unused() {
  std::erase_if(remotes_, [this](const auto& entry) {
    const Remote& remote = *entry.second;
    if (!remote.tensor.expired()) return false;
    if (!remote.gone) server_.release_value(remote.holder, remote.id);
    return true;
  });
}

void DirectExchange::release(int64_t microbatch) {
  for (const auto& [impl, watched] : watched_) {
    if (watched.microbatch != microbatch) continue;
    Site::Output& output = watched.site->output(watched.output);
    const bool direct =
        watched.uses == 1 && (output.way == Site::Way::kUnknown ||
                              (output.way == Site::Way::kDirect && output.user == watched.user));
    output = {.way = direct ? Site::Way::kDirect : Site::Way::kOverCaller, .user = watched.user};
  }
  std::erase_if(watched_, [&](const auto& entry) { return entry.second.microbatch == microbatch; });
  for (const auto& [impl, remote] : remotes_) {
    if (remote->microbatch != microbatch) continue;
    remote->gone = true;
    if (remote->site != nullptr && remote->uses != 1) {
      remote->site->output(remote->output).way = Site::Way::kOverCaller;
    }
  }
  std::erase_if(remotes_, [](const auto& entry) { return entry.second->tensor.expired(); });
  std::erase_if(calls_, [&](const auto& entry) { return std::get<0>(entry.first) == microbatch; });
}

void DirectExchange::clear() {
  watched_.clear();
  calls_.clear();
  for (const auto& [impl, remote] : remotes_) remote->gone = true;
  std::erase_if(remotes_, [](const auto& entry) { return entry.second->tensor.expired(); });
}

// --- Looking at a remote tensor ---

namespace {

class FetchedData : public torch::autograd::Function<FetchedData> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/,
                            const at::Tensor& /*remote_tensor*/, const at::Tensor& data) {
    return data.variable_data();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0], at::Tensor()};
  }
};

}  // namespace

at::Tensor with_gradient_of(const at::Tensor& remote_tensor, const at::Tensor& data) {
  return FetchedData::apply(remote_tensor, data);
}

}  // namespace smp::pipeline
