// SPDX-License-Identifier: Apache-2.0
// Clips gradients by their norm over a model that lies on several ranks.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "smp_runtime/session/session.h"

namespace smp::sharding {

inline constexpr double kLeastNorm = 1e-6;  ///< as torch.nn.utils.clip_grad_norm_

/// Reduction of the ranks' sums of powers, or of their largest elements.
inline c10d::ReduceOp::RedOpType operation_of(double norm_type) {
  return std::isinf(norm_type) ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM;
}

/// The norm over the ranks of all `groups`, of which `own` is this rank's part: the sum of powers,
/// or the largest element for the infinite norm. Both are scalars of 64 bits; no number on one rank
/// is none on all. Collective over the groups, one after the other; errors begin with `what`.
at::Tensor norm_over_ranks(session::Session& session, const std::string& what,
                           const at::Tensor& own, double norm_type,
                           const std::vector<session::GroupPtr>& groups);

/// Gradients of one rank.
struct RankGradients {
  std::vector<at::Tensor> slices;  ///< each a part of its own: of this rank alone
  std::vector<at::Tensor> whole;   ///< the same on all tensor ranks
};

/// Scales gradients down to a norm of `max_norm` over all partitions and slices of the model, each
/// element counted once, and returns the norm before that: a scalar of 64 bits on `device`, where a
/// rank without gradients meets the others. `norm_type` above 0; infinite for the largest element.
/// Collective over the model-parallel group. Throws ConfigError for another norm; errors of the
/// exchange begin with `what`.
at::Tensor clip_gradients(session::Session& session, const std::string& what,
                          const RankGradients& gradients, double max_norm, double norm_type,
                          c10::Device device);

}  // namespace smp::sharding
