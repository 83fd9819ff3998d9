// SPDX-License-Identifier: Apache-2.0
// Operators of layers that several tensor ranks share, and fused ones: each is one node of
// autograd's graph, which keeps less for the backward than its parts would.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "smp_runtime/tensor_parallel/tensor_exchange.h"
#include "smp_runtime/tensor_parallel/torch_free/redistribution.h"

namespace smp::tensor_parallel {

/// `tensor` after `mapping.forward`; its gradient comes back by `mapping.backward`. All ranks of
/// the group cross the same regions in the same order, forward and backward: what decides which
/// modules run must be alike on them. Blocks as TensorExchange does; call it without the GIL.
at::Tensor cross(const std::shared_ptr<TensorExchange>& exchange, const RegionMapping& mapping,
                 const at::Tensor& tensor);

/// `input` [.., n / t], `weight` and `bias` [n / t] -> [.., n / t], of the input's type. Statistics
/// are in 32 bits at least; ranks send each other two numbers a row, forward and backward. Slices'
/// means and squares are joined as Chan, Golub and LeVeque do (1983), so that nothing cancels.
at::Tensor sliced_layer_norm(const std::shared_ptr<TensorExchange>& exchange,
                             const at::Tensor& input, const at::Tensor& weight,
                             const at::Tensor& bias, double epsilon);

/// `scores` [n, words / t] and `labels` [n] of all words -> the loss of each row [n], in 32 bits at
/// least, the same on all ranks; 0 for rows labelled `ignored`. The scores themselves are never
/// gathered: ranks send each other three numbers a row forward, and nothing backward.
/// Throws ConfigError for a label that is no word.
at::Tensor vocabulary_loss(const std::shared_ptr<TensorExchange>& exchange,
                           const at::Tensor& scores, const at::Tensor& labels,
                           std::int64_t ignored);

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
