// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "smp_runtime/cuda/tensor_type.h"
#include "smp_runtime/tensor_parallel/fused_blocks_kernels.h"
#include "smp_runtime/tensor_parallel/layer_operators.h"

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

/// The bias as a view of the scores' shape; nothing if it does not go with it, or is of another
/// type or device.
std::optional<at::Tensor> laid_over(const at::Tensor& scores, const at::Tensor& bias) {
  if (bias.scalar_type() != scores.scalar_type() || bias.device() != scores.device() ||
      bias.dim() > scores.dim()) {
    return std::nullopt;
  }
  const std::int64_t more = scores.dim() - bias.dim();
  for (std::int64_t dim = 0; dim < bias.dim(); ++dim) {
    if (bias.size(dim) != 1 && bias.size(dim) != scores.size(dim + more)) return std::nullopt;
  }
  return bias.expand(scores.sizes());
}

/// Null without a kernel for these.
at::Tensor softmax_on_gpu(const at::Tensor& scores, const std::optional<at::Tensor>& bias,
                          bool causal, std::optional<std::int64_t> window) {
  if constexpr (cuda::kBuilt) {
    const auto type = cuda::kernel_type(scores);
    const auto over = bias ? laid_over(scores, *bias) : std::nullopt;
    if (!type || scores.dim() != 4 || (bias && !over)) return {};
    const c10::DeviceGuard device(scores.device());
    const at::Tensor dense = scores.contiguous();
    at::Tensor result = at::empty_like(dense);
    SoftmaxShape shape{.rows = dense.numel() / dense.size(3),
                       .heads = dense.size(1),
                       .queries = dense.size(2),
                       .keys = dense.size(3),
                       .causal = causal};
    if (window) shape.window = *window;
    for (int dim = 0; over && dim < 4; ++dim) shape.bias_strides[dim] = over->stride(dim);
    launch_softmax(*type, shape, dense.const_data_ptr(), over ? over->const_data_ptr() : nullptr,
                   result.data_ptr(), cuda::current_stream(scores));
    return result;
  }
  return {};
}

struct MaskedSoftmax : torch::autograd::Function<MaskedSoftmax> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& scores,
                            const std::optional<at::Tensor>& bias, bool causal,
                            std::optional<std::int64_t> window) {
    if (at::Tensor result = softmax_on_gpu(scores, bias, causal, window); result.defined()) {
      context->save_for_backward({result});
      return result;
    }
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

/// Arguments of the kernel: tensors of one type on one GPU, without gaps.
struct BiasGeluOnGpu {
  cuda::NumberType type;
  GeluKind kind;
  at::Tensor input;
  at::Tensor bias;
  std::int64_t width = bias.size(0);
  std::int64_t rows = input.numel() / width;
};

/// Empty without a kernel for these.
std::optional<BiasGeluOnGpu> on_gpu(const at::Tensor& input, const at::Tensor& bias,
                                    const std::string& approximate) {
  const auto type = cuda::kernel_type(input);
  const bool alike = bias.dim() == 1 && bias.device() == input.device() &&
                     bias.scalar_type() == input.scalar_type() && input.dim() > 0 &&
                     bias.size(0) == input.size(-1) && input.numel() > 0;
  if (!type || !alike || (approximate != "none" && approximate != "tanh")) return std::nullopt;
  return BiasGeluOnGpu{.type = *type,
                       .kind = approximate == "tanh" ? GeluKind::kTanh : GeluKind::kErf,
                       .input = input.contiguous(),
                       .bias = bias.contiguous()};
}

at::Tensor by_kernel(const BiasGeluOnGpu& given) {
  const c10::DeviceGuard device(given.input.device());
  at::Tensor result = at::empty_like(given.input);
  launch_bias_gelu(given.type, given.kind, given.rows, given.width, given.input.const_data_ptr(),
                   given.bias.const_data_ptr(), result.data_ptr(),
                   cuda::current_stream(given.input));
  return result;
}

/// Gradients of the input and the bias.
std::pair<at::Tensor, at::Tensor> slopes_by_kernel(const BiasGeluOnGpu& given,
                                                   const at::Tensor& gradient) {
  const c10::DeviceGuard device(given.input.device());
  const at::Tensor dense = gradient.to(given.input.scalar_type()).contiguous();
  at::Tensor back = at::empty_like(given.input);
  const std::int64_t strips = cuda::strips_of(given.rows, given.width);
  const auto wide = c10::promoteTypes(given.input.scalar_type(), at::kFloat);
  const at::Tensor parts = at::empty({strips, given.width}, given.input.options().dtype(wide));
  launch_bias_gelu_slopes(given.type, given.kind, given.rows, given.width, strips,
                          given.input.const_data_ptr(), given.bias.const_data_ptr(),
                          dense.const_data_ptr(), back.data_ptr(), parts.data_ptr(),
                          cuda::current_stream(given.input));
  return {back, parts.sum(0).to(given.bias.scalar_type())};
}

struct BiasGelu : torch::autograd::Function<BiasGelu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& bias, const std::string& approximate) {
    context->save_for_backward({input, bias});
    context->saved_data["approximate"] = approximate;
    if constexpr (cuda::kBuilt) {
      if (const auto given = on_gpu(input, bias, approximate)) return by_kernel(*given);
    }
    return at::gelu(input + bias, approximate);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const std::string& approximate = context->saved_data["approximate"].toStringRef();
    if constexpr (cuda::kBuilt) {
      if (const auto given = on_gpu(saved[0], saved[1], approximate)) {
        const auto [back, of_bias] = slopes_by_kernel(*given, gradients[0]);
        return {back, of_bias, at::Tensor()};
      }
    }
    const at::Tensor back = at::gelu_backward(gradients[0], saved[0] + saved[1], approximate);
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
