// SPDX-License-Identifier: Apache-2.0
// The autograd nodes at both ends of a remote call.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include "smp_runtime/pipeline/engine/call_body.h"
#include "smp_runtime/pipeline/engine/direct_exchange.h"

namespace smp::pipeline {

class Engine;

/// One call, handed into RemoteCall::apply; `reply_definition` and `plan` come back.
struct RemoteInvocation {
  Engine* engine;
  Route route;
  CallModes modes;
  std::string definition;
  std::string reply_definition;
  DirectExchange::Plan plan;
};

/// At the caller. `anchor` is a scalar that requires grad, so that there is a backward even if no
/// argument requires one: the module has parameters.
class RemoteCall : public torch::autograd::Function<RemoteCall> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& anchor, at::TensorList arguments,
                                                RemoteInvocation* invocation);
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients);
};

/// At the owner: makes a received leaf an ordinary tensor, which the module may change in place.
class CallInput : public torch::autograd::Function<CallInput> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& leaf);
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients);
};

}  // namespace smp::pipeline
