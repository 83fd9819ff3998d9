// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/var_mean.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/ScalarType.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/custom_function.h>

#include "smp_runtime/cuda/tensor_type.h"
#include "smp_runtime/tensor_parallel/layer_operators.h"
#include "smp_runtime/tensor_parallel/row_kernels.h"

namespace smp::tensor_parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Keeps the group between forward and backward.
struct ExchangeHandle : torch::CustomClassHolder {
  explicit ExchangeHandle(std::shared_ptr<TensorExchange> held) : exchange(std::move(held)) {}
  std::shared_ptr<TensorExchange> exchange;
};

at::Tensor widened(const at::Tensor& tensor) {
  return tensor.to(c10::promoteTypes(tensor.scalar_type(), at::kFloat));
}

/// Rows of a slice, and all that is done with them by one rank alone. `mean` and `scale` [.., 1]
/// are of the wide type.
struct Rows {
  at::Tensor input;
  at::Tensor weight;
  at::Tensor mean;
  at::Tensor scale;
};

// --- With torch's operations ---

at::Tensor moments_by_torch(const at::Tensor& input) {
  const auto [variance, mean] = at::var_mean(widened(input), {-1}, /*correction=*/0, true);
  return at::stack({variance, mean}, -1);
}

at::Tensor normal_by_torch(const Rows& rows) {
  return (widened(rows.input) - rows.mean) * rows.scale;
}

at::Tensor slope_sums_by_torch(const Rows& rows, const at::Tensor& gradient) {
  const at::Tensor inner = widened(gradient) * widened(rows.weight);
  return at::stack({inner.sum(-1, true), (inner * normal_by_torch(rows)).sum(-1, true)}, -1);
}

struct Slopes {
  at::Tensor input;
  at::Tensor weight;  ///< [width], of the wide type
  at::Tensor bias;
};

Slopes slopes_by_torch(const Rows& rows, const at::Tensor& gradient, const at::Tensor& means) {
  const at::Tensor wide = widened(gradient);
  const at::Tensor normal = normal_by_torch(rows);
  const at::Tensor inner = wide * widened(rows.weight);
  const std::int64_t width = normal.size(-1);
  return {.input = (inner - means.select(-1, 0) - normal * means.select(-1, 1)) * rows.scale,
          .weight = (wide * normal).reshape({-1, width}).sum(0),
          .bias = wide.reshape({-1, width}).sum(0)};
}

// --- With a GPU's kernels ---

std::optional<cuda::NumberType> kernel_for(const at::Tensor& input, const at::Tensor& weight) {
  if (weight.scalar_type() != input.scalar_type() || weight.device() != input.device()) {
    return std::nullopt;
  }
  return cuda::kernel_type(input);
}

at::TensorOptions wide_options(const at::Tensor& tensor) {
  return tensor.options().dtype(c10::promoteTypes(tensor.scalar_type(), at::kFloat));
}

std::vector<std::int64_t> sizes_per_row(const at::Tensor& input) {
  std::vector<std::int64_t> sizes = input.sizes().vec();
  sizes.back() = 1;
  sizes.push_back(2);
  return sizes;
}

/// All tensors of `rows` have no gaps.
AnyNormalRows pointers_of(const Rows& rows) {
  const std::int64_t width = rows.input.size(-1);
  return {.rows = rows.input.numel() / width,
          .width = width,
          .input = rows.input.const_data_ptr(),
          .weight = rows.weight.const_data_ptr(),
          .mean = rows.mean.const_data_ptr(),
          .scale = rows.scale.const_data_ptr()};
}

Rows dense(const Rows& rows) {
  return {.input = rows.input.contiguous(),
          .weight = rows.weight.contiguous(),
          .mean = rows.mean.contiguous(),
          .scale = rows.scale.contiguous()};
}

at::Tensor moments_by_kernel(cuda::NumberType type, const at::Tensor& input) {
  const at::Tensor whole = input.contiguous();
  const std::int64_t width = input.size(-1);
  at::Tensor moments = at::empty(sizes_per_row(input), wide_options(input));
  launch_moments(type, whole.numel() / width, width, whole.const_data_ptr(), moments.data_ptr(),
                 cuda::current_stream(input));
  return moments;
}

at::Tensor result_by_kernel(cuda::NumberType type, const Rows& given, const at::Tensor& bias) {
  const Rows rows = dense(given);
  const at::Tensor dense_bias = bias.contiguous();
  at::Tensor result = at::empty_like(rows.input);
  launch_normalise(type, pointers_of(rows), dense_bias.const_data_ptr(), result.data_ptr(),
                   cuda::current_stream(result));
  return result;
}

at::Tensor slope_sums_by_kernel(cuda::NumberType type, const Rows& given,
                                const at::Tensor& gradient) {
  const Rows rows = dense(given);
  at::Tensor sums = at::empty(sizes_per_row(rows.input), wide_options(rows.input));
  launch_slope_sums(type, pointers_of(rows), gradient.const_data_ptr(), sums.data_ptr(),
                    cuda::current_stream(sums));
  return sums;
}

Slopes slopes_by_kernel(cuda::NumberType type, const Rows& given, const at::Tensor& gradient,
                        const at::Tensor& means) {
  const Rows rows = dense(given);
  const at::Tensor dense_means = means.contiguous();
  const AnyNormalRows pointers = pointers_of(rows);
  at::Tensor back = at::empty_like(rows.input);
  const std::int64_t strips = cuda::strips_of(pointers.rows, pointers.width);
  const at::Tensor parts = at::empty({2, strips, pointers.width}, wide_options(rows.input));
  launch_slopes(type, pointers, strips, gradient.const_data_ptr(), dense_means.const_data_ptr(),
                back.data_ptr(), parts.data_ptr(), cuda::current_stream(rows.input));
  const at::Tensor sums = parts.sum(1);
  return {.input = back, .weight = sums[0], .bias = sums[1]};
}

struct SlicedLayerNorm : torch::autograd::Function<SlicedLayerNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const at::Tensor& bias,
                            const std::shared_ptr<TensorExchange>& exchange, double epsilon) {
    const std::int64_t ranks = exchange->size();
    const auto kernel = kernel_for(input, weight);
    const c10::DeviceGuard device(input.device());
    at::Tensor moments;  // [.., 1, 2]
    if constexpr (cuda::kBuilt) {
      if (kernel) moments = moments_by_kernel(*kernel, input);
    }
    if (!moments.defined()) moments = moments_by_torch(input);
    at::Tensor variance = moments.select(-1, 0);
    at::Tensor mean = moments.select(-1, 1);
    if (ranks > 1) {
      const at::Tensor all =  // [t, .., 1, 2]
          exchange->move({.kind = RedistributionKind::kGather, .dim = 0}, moments.unsqueeze(0));
      const at::Tensor means = all.select(-1, 1);
      mean = means.sum(0).div_(ranks);
      const at::Tensor apart = means - mean;
      variance = (all.select(-1, 0) + apart * apart).sum(0).div_(ranks);
    }
    const at::Tensor scale = at::rsqrt(variance + epsilon);
    context->save_for_backward({input, weight, mean, scale});
    context->saved_data["exchange"] =
        c10::IValue::make_capsule(c10::make_intrusive<ExchangeHandle>(exchange));
    const Rows rows{.input = input, .weight = weight, .mean = mean, .scale = scale};
    if constexpr (cuda::kBuilt) {
      if (kernel && bias.scalar_type() == input.scalar_type()) {
        return result_by_kernel(*kernel, rows, bias);
      }
    }
    return normal_by_torch(rows).to(input.scalar_type()) * weight + bias;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto held = context->saved_data["exchange"].toCapsule();
    TensorExchange& exchange = *static_cast<ExchangeHandle&>(*held).exchange;
    const Rows rows{.input = saved[0], .weight = saved[1], .mean = saved[2], .scale = saved[3]};
    const auto elements = static_cast<double>(rows.input.size(-1) * exchange.size());
    const auto means_of = [&](const at::Tensor& sums) {
      return exchange.move({.kind = RedistributionKind::kAllReduce}, sums).div_(elements);
    };
    const c10::DeviceGuard device(rows.input.device());
    Slopes slopes;
    if constexpr (cuda::kBuilt) {
      if (const auto kernel = kernel_for(rows.input, rows.weight)) {
        const at::Tensor gradient = gradients[0].to(rows.input.scalar_type()).contiguous();
        const at::Tensor means = means_of(slope_sums_by_kernel(*kernel, rows, gradient));
        slopes = slopes_by_kernel(*kernel, rows, gradient, means);
      }
    }
    if (!slopes.input.defined()) {
      const at::Tensor means = means_of(slope_sums_by_torch(rows, gradients[0]));
      slopes = slopes_by_torch(rows, gradients[0], means);
    }
    const auto type = rows.weight.scalar_type();
    return {slopes.input.to(rows.input.scalar_type()), slopes.weight.to(type), slopes.bias.to(type),
            at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor sliced_layer_norm(const std::shared_ptr<TensorExchange>& exchange,
                             const at::Tensor& input, const at::Tensor& weight,
                             const at::Tensor& bias, double epsilon) {
  const bool alike =
      weight.scalar_type() == input.scalar_type() && bias.scalar_type() == input.scalar_type();
  if (exchange->size() == 1 && alike) {  // torch's kernel reads rows once for all
    return at::layer_norm(input, weight.sizes(), weight, bias, epsilon);
  }
  return SlicedLayerNorm::apply(input, weight, bias, exchange, epsilon);
}

}  // namespace smp::tensor_parallel
