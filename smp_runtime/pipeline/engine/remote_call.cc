// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/engine/remote_call.h"

#include <utility>

#include "smp_runtime/core/error.h"
#include "smp_runtime/pipeline/engine/engine.h"

namespace smp::pipeline {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

variable_list RemoteCall::forward(AutogradContext* context, const at::Tensor& /*anchor*/,
                                  at::TensorList arguments, RemoteInvocation* invocation) {
  uint64_t call = 0;
  CallBody body = invocation->engine->exchange(*invocation, arguments.vec(), call);
  invocation->reply_definition = std::move(body.tree.definition);
  invocation->engine->keep_arguments(call, invocation->plan);

  context->set_materialize_grads(false);
  context->saved_data["engine"] = reinterpret_cast<int64_t>(invocation->engine);
  std::vector<int64_t> owners;
  std::vector<int64_t> targets;
  for (const Hop& hop : invocation->route) {
    owners.push_back(hop.owner);
    targets.push_back(hop.target);
  }
  context->saved_data["owners"] = std::move(owners);
  context->saved_data["targets"] = std::move(targets);
  context->saved_data["call"] = static_cast<int64_t>(call);
  context->saved_data["arguments"] = static_cast<int64_t>(arguments.size());
  variable_list constants;
  for (size_t index = 0; index < body.tree.tensors.size(); ++index) {
    if (!body.requires_grad[index]) constants.push_back(body.tree.tensors[index]);
  }
  context->mark_non_differentiable(constants);
  return std::move(body.tree.tensors);
}

variable_list RemoteCall::backward(AutogradContext* context, variable_list gradients) {
  const auto number = [context](const char* name) { return context->saved_data[name].toInt(); };
  auto* engine = reinterpret_cast<Engine*>(number("engine"));
  const std::vector<int64_t> owners = context->saved_data["owners"].toIntVector();
  const std::vector<int64_t> targets = context->saved_data["targets"].toIntVector();
  Route route;
  for (size_t hop = 0; hop < owners.size(); ++hop) {
    route.push_back({.owner = static_cast<int>(owners[hop]), .target = targets[hop]});
  }
  engine->require_backward(route);
  ++engine->backwards_;
  variable_list results =
      engine->exchange_backward(route, static_cast<uint64_t>(number("call")), std::move(gradients));
  SMP_CHECK(static_cast<int64_t>(results.size()) == number("arguments"), "{} gradients",
            results.size());
  results.insert(results.begin(), at::Tensor());  // the anchor
  results.emplace_back();                         // the invocation
  return results;
}

at::Tensor CallInput::forward(AutogradContext* /*context*/, const at::Tensor& leaf) {
  // Shares memory, but is no view: autograd refuses in-place changes of a leaf's views.
  return leaf.variable_data();
}

variable_list CallInput::backward(AutogradContext* /*context*/, variable_list gradients) {
  return gradients;
}

}  // namespace smp::pipeline
