// SPDX-License-Identifier: Apache-2.0
// Cross entropy where each tensor rank has the scores of a slice of the vocabulary.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "smp_runtime/tensor_parallel/tensor_exchange.h"

namespace smp::tensor_parallel {

/// `scores` [n, words / t] and `labels` [n] of all words -> the loss of each row [n], in 32 bits at
/// least, the same on all ranks; 0 for rows labelled `ignored`. The scores themselves are never
/// gathered: ranks send each other three numbers a row forward, and nothing backward.
/// Throws ConfigError for a label that is no word.
at::Tensor vocabulary_loss(const std::shared_ptr<TensorExchange>& exchange,
                           const at::Tensor& scores, const at::Tensor& labels,
                           std::int64_t ignored);

}  // namespace smp::tensor_parallel
