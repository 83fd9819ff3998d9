// SPDX-License-Identifier: Apache-2.0
// Nodes of autograd's graph that may be run in two parts, and the tensors that nodes have saved.
#pragma once

#include <optional>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "smp_runtime/torch_compat/torch_compat.h"

namespace smp::pipeline {

using SavedTensors = std::vector<torch::autograd::SavedVariable*>;

/// Tensors that a node has saved, which both parts may need.
struct NodeTensors {
  torch_compat::NodePtr node;
  SavedTensors tensors;

  /// Takes them through their hooks, which may give them once only, and in this backward alone.
  /// True if there was any.
  [[nodiscard]] bool unpack() const;
};

/// True if hooks are to see gradients that come to the node, or go from it.
[[nodiscard]] bool has_hooks(torch::autograd::Node& node);

/// True if some pass through hooks.
[[nodiscard]] bool have_hooks(const SavedTensors& saved);

/// What a node has saved whose two parts cost about what both cost together, and which bears to be
/// run twice: sums, products, convolutions, embeddings. None for another.
[[nodiscard]] std::optional<SavedTensors> saved_by_separable(torch::autograd::Node& node);

/// True for what lies between a parameter and the layers that use it most often.
[[nodiscard]] bool saves_nothing(const torch::autograd::Node& node);

}  // namespace smp::pipeline
