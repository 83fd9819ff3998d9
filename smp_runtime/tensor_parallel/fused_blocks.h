// SPDX-License-Identifier: Apache-2.0
// Steps of a transformer layer in one node of autograd's graph each, which keeps less for backward
// than its parts would.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

namespace smp::tensor_parallel {

/// softmax(scores + bias) over the last dim of `scores` [batch, heads, queries, keys], where a key
/// that comes later than its query counts nothing if `causal`, nor one that is `window` or more
/// before it. `bias` goes with the scores' shape and gets no gradient. Keeps the result alone.
at::Tensor masked_softmax(const at::Tensor& scores, const std::optional<at::Tensor>& bias,
                          bool causal, std::optional<std::int64_t> window);

/// gelu(input + bias), `approximate` as torch's: "none" or "tanh". Keeps input and bias, not their
/// sum.
at::Tensor bias_gelu(const at::Tensor& input, const at::Tensor& bias,
                     const std::string& approximate);

}  // namespace smp::tensor_parallel
