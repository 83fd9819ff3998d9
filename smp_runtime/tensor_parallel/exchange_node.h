// SPDX-License-Identifier: Apache-2.0
// A change of layout as a node of autograd's graph.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "smp_runtime/tensor_parallel/tensor_exchange.h"
#include "smp_runtime/tensor_parallel/torch_free/redistribution.h"

namespace smp::tensor_parallel {

/// `tensor` after `mapping.forward`; its gradient comes back by `mapping.backward`. All ranks of
/// the group cross the same regions in the same order, forward and backward: what decides which
/// modules run must be alike on them. Blocks as TensorExchange does; call it without the GIL.
at::Tensor cross(const std::shared_ptr<TensorExchange>& exchange, const RegionMapping& mapping,
                 const at::Tensor& tensor);

}  // namespace smp::tensor_parallel
