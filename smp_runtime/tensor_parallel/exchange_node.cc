// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "smp_runtime/tensor_parallel/layer_operators.h"
#include "smp_runtime/torch_compat/torch_compat.h"

namespace smp::tensor_parallel {
namespace {

using torch::autograd::variable_list;

class ExchangeNode : public torch::autograd::Node {
 public:
  ExchangeNode(std::shared_ptr<TensorExchange> exchange, const RegionMapping& mapping)
      : exchange_(std::move(exchange)), mapping_(mapping) {}

  std::string name() const override { return "TensorParallelExchange"; }

 protected:
  variable_list apply(variable_list&& gradients) override {
    at::Tensor gradient = std::move(gradients[0]);
    // Other ranks may have one and wait: zeros then, rather than nothing.
    if (!gradient.defined()) gradient = input_metadata(0).zeros_like();
    // Scales where the tensor has fewer elements: before a gather, else after the exchange.
    const bool first = mapping_.backward.kind == RedistributionKind::kGather;
    if (first) gradient = scaled(gradient);
    gradient = exchange_->move(mapping_.backward, gradient);
    return {first ? gradient : scaled(gradient)};
  }

 private:
  [[nodiscard]] at::Tensor scaled(const at::Tensor& gradient) const {
    return mapping_.backward_scale == 1.0 ? gradient : gradient.mul(mapping_.backward_scale);
  }

  std::shared_ptr<TensorExchange> exchange_;
  RegionMapping mapping_;
};

}  // namespace

at::Tensor cross(const std::shared_ptr<TensorExchange>& exchange, const RegionMapping& mapping,
                 const at::Tensor& tensor) {
  at::Tensor result = exchange->move(mapping.forward, tensor.detach());
  if (torch::autograd::compute_requires_grad(tensor)) {
    auto node = torch_compat::make_node<ExchangeNode>(exchange, mapping);
    node->set_next_edges(torch::autograd::collect_next_edges(tensor));
    torch::autograd::set_history(result, node);
  }
  return result;
}

}  // namespace smp::tensor_parallel
