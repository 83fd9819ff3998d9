// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/engine/separable_nodes.h"

#include <algorithm>

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/generated/Functions.h>

namespace smp::pipeline {

using Node = torch::autograd::Node;
using torch::autograd::SavedVariable;

namespace {

template <class Function>
std::optional<SavedTensors> if_is(Node& node, auto... saved) {
  auto* function = dynamic_cast<Function*>(&node);
  if (function == nullptr) return std::nullopt;
  return SavedTensors{&(function->*saved)...};
}

template <class... Functions>
bool is_any_of(const Node& node) {
  return ((dynamic_cast<const Functions*>(&node) != nullptr) || ...);
}

}  // namespace

bool NodeTensors::unpack() const {
  bool was_hooked = false;
  for (SavedVariable* saved : tensors) {
    if (!saved->has_hooks()) continue;
    *saved = SavedVariable(saved->unpack(node).detach(), /*is_output=*/false);
    was_hooked = true;
  }
  return was_hooked;
}

bool has_hooks(Node& node) {
  return !node.pre_hooks().empty() || !node.tensor_pre_hooks().empty() ||
         !node.post_hooks().empty() || !node.retains_grad_hooks().empty();
}

std::optional<SavedTensors> saved_by_separable(Node& node) {
  using namespace torch::autograd::generated;  // their names are those of the operators
  for (auto found : {if_is<AddBackward0>(node),
                     if_is<MulBackward0>(node, &MulBackward0::self_, &MulBackward0::other_),
                     if_is<MmBackward0>(node, &MmBackward0::self_, &MmBackward0::mat2_),
                     if_is<AddmmBackward0>(node, &AddmmBackward0::mat1_, &AddmmBackward0::mat2_),
                     if_is<ConvolutionBackward0>(node, &ConvolutionBackward0::input_,
                                                 &ConvolutionBackward0::weight_),
                     if_is<EmbeddingBackward0>(node, &EmbeddingBackward0::indices_)}) {
    if (found) return found;
  }
  return std::nullopt;
}

bool saves_nothing(const Node& node) {
  using namespace torch::autograd::generated;
  return is_any_of<torch::autograd::AccumulateGrad, TBackward0, TransposeBackward0,
                   PermuteBackward0, ViewBackward0, UnsafeViewBackward0, ExpandBackward0,
                   ToCopyBackward0, CloneBackward0>(node);
}

bool have_hooks(const SavedTensors& saved) {
  return std::ranges::any_of(saved, [](const SavedVariable* one) { return one->has_hooks(); });
}

}  // namespace smp::pipeline
