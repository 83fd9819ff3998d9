// SPDX-License-Identifier: Apache-2.0
// The sum of sparse tensors over a group: each rank's entries go to all, who add them up in one
// order, so that all have the same bits.
#pragma once

#include <ATen/core/Tensor.h>

#include "smp_runtime/smddp/collectives/communicator.h"

namespace smp::smddp {

/// `tensor` [sparse dims..., dense dims...], coalesced, on the CPU, where copies of a GPU go on the
/// thread's stream.
at::Tensor sparse_on_cpu(const at::Tensor& tensor);

/// Coalesced, of all ranks' `own`, which have one size and type; collective. Divided by the number
/// of ranks for an average. As with dense tensors 16 bits are added in 32 and rounded once, and
/// the sum that an average begins with has room. Throws HostError where the ranks' differ.
at::Tensor sum_of_sparse(collectives::Communicator& group, const at::Tensor& own, bool average,
                         const transport::WaitLimit& limit);

/// `sum` becomes the content of `target`, in the thread's stream.
void put_back_sparse(const at::Tensor& target, const at::Tensor& sum);

}  // namespace smp::smddp
