// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/tensor_parallel/sliced_layer_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/var_mean.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/autograd/custom_function.h>

#include "smp_runtime/tensor_parallel/exchange_handle.h"

namespace smp::tensor_parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor widened(const at::Tensor& tensor) {
  return tensor.to(c10::promoteTypes(tensor.scalar_type(), at::kFloat));
}

struct SlicedLayerNorm : torch::autograd::Function<SlicedLayerNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const at::Tensor& bias,
                            const std::shared_ptr<TensorExchange>& exchange, double epsilon) {
    const at::Tensor wide = widened(input);
    const std::int64_t ranks = exchange->size();
    auto [variance, mean] = at::var_mean(wide, {-1}, /*correction=*/0, /*keepdim=*/true);
    if (ranks > 1) {
      const at::Tensor all =  // [t, .., 1, 2]
          exchange->move({.kind = MovementKind::kGather, .dim = 0},
                         at::stack({variance, mean}, -1).unsqueeze(0));
      const at::Tensor means = all.select(-1, 1);
      mean = means.sum(0).div_(ranks);
      const at::Tensor apart = means - mean;
      variance = (all.select(-1, 0) + apart * apart).sum(0).div_(ranks);
    }
    const at::Tensor scale = at::rsqrt(variance + epsilon);
    context->save_for_backward({input, weight, mean, scale});
    context->saved_data["exchange"] = keep(exchange);
    const at::Tensor normal = ((wide - mean) * scale).to(input.scalar_type());
    return normal * weight + bias;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    TensorExchange& exchange = kept(context->saved_data["exchange"]);
    const at::Tensor gradient = widened(gradients[0]);
    const at::Tensor normal = (widened(saved[0]) - saved[2]) * saved[3];
    const at::Tensor inner = gradient * widened(saved[1]);
    at::Tensor sums = at::stack({inner.sum(-1, true), (inner * normal).sum(-1, true)}, -1);
    sums = exchange.move({.kind = MovementKind::kAllReduce}, sums)
               .div_(static_cast<double>(normal.size(-1) * exchange.size()));
    const at::Tensor back = (inner - sums.select(-1, 0) - normal * sums.select(-1, 1)) * saved[3];
    const std::int64_t width = normal.size(-1);
    const auto type = saved[1].scalar_type();
    return {back.to(saved[0].scalar_type()),
            (gradient * normal).reshape({-1, width}).sum(0).to(type),
            gradient.reshape({-1, width}).sum(0).to(type), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor sliced_layer_norm(const std::shared_ptr<TensorExchange>& exchange,
                             const at::Tensor& input, const at::Tensor& weight,
                             const at::Tensor& bias, double epsilon) {
  return SlicedLayerNorm::apply(input, weight, bias, exchange, epsilon);
}

}  // namespace smp::tensor_parallel
