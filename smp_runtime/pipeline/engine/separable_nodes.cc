// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/engine/separable_nodes.h"

#include <torch/csrc/autograd/generated/Functions.h>

namespace smp::pipeline {
namespace {

using namespace torch::autograd::generated;  // their names are those of the operators

/// True if the node is of that class, and none of what it has saved passes through hooks, which may
/// give it once only.
template <class Function>
bool is(torch::autograd::Node& node, auto... saved) {
  const auto* function = dynamic_cast<Function*>(&node);
  return function != nullptr && !((function->*saved).has_hooks() || ...);
}

}  // namespace

bool is_separable(torch::autograd::Node& node) {
  return is<AddBackward0>(node) ||
         is<MulBackward0>(node, &MulBackward0::self_, &MulBackward0::other_) ||
         is<MmBackward0>(node, &MmBackward0::self_, &MmBackward0::mat2_) ||
         is<AddmmBackward0>(node, &AddmmBackward0::mat1_, &AddmmBackward0::mat2_) ||
         is<ConvolutionBackward0>(node, &ConvolutionBackward0::input_,
                                  &ConvolutionBackward0::weight_) ||
         is<EmbeddingBackward0>(node, &EmbeddingBackward0::indices_);
}

}  // namespace smp::pipeline
