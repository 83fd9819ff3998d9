// SPDX-License-Identifier: Apache-2.0
// Layer normalisation over a dim of which each tensor rank holds a slice.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "smp_runtime/tensor_parallel/tensor_exchange.h"

namespace smp::tensor_parallel {

/// `input` [.., n / t], `weight` and `bias` [n / t] -> [.., n / t], of the input's type. Statistics
/// are in 32 bits at least; ranks send each other two numbers a row, forward and backward. Slices'
/// means and squares are joined as Chan, Golub and LeVeque do (1983), so that nothing cancels.
at::Tensor sliced_layer_norm(const std::shared_ptr<TensorExchange>& exchange,
                             const at::Tensor& input, const at::Tensor& weight,
                             const at::Tensor& bias, double epsilon);

}  // namespace smp::tensor_parallel
