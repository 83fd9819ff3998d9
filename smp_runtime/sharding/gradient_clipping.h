// SPDX-License-Identifier: Apache-2.0
// Clips gradients by their norm over a model that lies on several ranks.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "smp_runtime/session/session.h"

namespace smp::sharding {

/// Of one rank.
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
