// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/tensor_parallel/fused_blocks.h"

#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/add.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <torch/csrc/autograd/custom_function.h>

namespace smp::tensor_parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// [queries, keys]: whether the key is hidden from the query. The last query sees the last key.
at::Tensor hidden(const at::Tensor& scores, std::optional<std::int64_t> window) {
  const std::int64_t queries = scores.size(-2);
  const std::int64_t keys = scores.size(-1);
  const at::Tensor all = at::ones({queries, keys}, scores.options().dtype(at::kBool));
  at::Tensor result = all.triu(keys - queries + 1);
  if (window) result.logical_or_(all.tril(keys - queries - *window));
  return result;
}

struct MaskedSoftmax : torch::autograd::Function<MaskedSoftmax> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& scores,
                            const std::optional<at::Tensor>& bias, bool causal,
                            std::optional<std::int64_t> window) {
    at::Tensor masked = bias ? scores + *bias : scores;
    if (causal) {
      // In place where the memory is ours.
      const at::Tensor where = hidden(scores, window);
      constexpr double kNever = -std::numeric_limits<double>::infinity();
      masked = bias ? masked.masked_fill_(where, kNever) : masked.masked_fill(where, kNever);
    }
    at::Tensor result = at::softmax(masked, -1);
    context->save_for_backward({result});
    return result;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor result = context->get_saved_variables()[0];
    return {at::_softmax_backward_data(gradients[0], result, -1, result.scalar_type()),
            at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

struct BiasGelu : torch::autograd::Function<BiasGelu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& bias, const std::string& approximate) {
    context->save_for_backward({input, bias});
    context->saved_data["approximate"] = approximate;
    return at::gelu(input + bias, approximate);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor back = at::gelu_backward(gradients[0], saved[0] + saved[1],
                                              context->saved_data["approximate"].toStringRef());
    return {back, back.reshape({-1, back.size(-1)}).sum(0), at::Tensor()};
  }
};

}  // namespace

at::Tensor masked_softmax(const at::Tensor& scores, const std::optional<at::Tensor>& bias,
                          bool causal, std::optional<std::int64_t> window) {
  return MaskedSoftmax::apply(scores, bias, causal, window);
}

at::Tensor bias_gelu(const at::Tensor& input, const at::Tensor& bias,
                     const std::string& approximate) {
  return BiasGelu::apply(input, bias, approximate);
}

}  // namespace smp::tensor_parallel
