// SPDX-License-Identifier: Apache-2.0
// Nodes of torch's graph whose gradients of activations and of parameters can be had one after the
// other for about what both cost at once.
#pragma once

#include <torch/csrc/autograd/function.h>

namespace smp::pipeline {

/// True for sums, products, convolutions and embeddings: nearly all of a network's work. False
/// where tensors that the node has saved pass through hooks, since these may give them once only.
[[nodiscard]] bool is_separable(torch::autograd::Node& node);

}  // namespace smp::pipeline
