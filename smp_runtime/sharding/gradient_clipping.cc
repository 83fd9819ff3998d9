// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/gradient_clipping.h"

#include <cmath>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>

#include "smp_runtime/core/error.h"

namespace smp::sharding {

using topology::Group;

at::Tensor clip_gradients(session::Session& session, const std::string& what,
                          const RankGradients& gradients, double max_norm, double norm_type,
                          c10::Device device) {
  const at::NoGradGuard no_grad;
  if (!(norm_type > 0)) throw ConfigError("{}: norm_type is {}; it is above 0", what, norm_type);
  const bool largest = std::isinf(norm_type);
  at::Tensor total = at::zeros({}, at::TensorOptions(device).dtype(at::kDouble));
  const auto add = [&](const std::vector<at::Tensor>& all) {
    for (const at::Tensor& gradient : all) {
      const at::Tensor norm = at::linalg_vector_norm(gradient, norm_type).to(at::kDouble);
      total = largest ? at::maximum(total, norm) : total + norm.pow(norm_type);
    }
  };
  add(gradients.slices);
  // One of the tensor ranks speaks for what all of them hold.
  if (session.mesh().rank_in(Group::kTp, session.ranks().rank) == 0) add(gradients.whole);
  if (session.mesh().size(Group::kMp) > 1) {
    session.all_reduce(what, total, *session.groups().internal_group(Group::kMp),
                       largest ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM);
  }
  const at::Tensor norm = largest ? total : total.pow(1 / norm_type);
  const at::Tensor factor = (max_norm / (norm + 1e-6)).clamp_max(1.0);
  for (const auto* all : {&gradients.slices, &gradients.whole}) {
    for (const at::Tensor& gradient : *all) gradient.mul_(factor.to(gradient.scalar_type()));
  }
  return norm;
}

}  // namespace smp::sharding
