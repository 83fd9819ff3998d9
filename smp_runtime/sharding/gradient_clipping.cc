// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/gradient_clipping.h"

#include <limits>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "smp_runtime/core/error.h"

namespace smp::sharding {

using topology::Group;

at::Tensor norm_over_ranks(session::Session& session, const std::string& what,
                           const at::Tensor& own, double norm_type,
                           const std::vector<session::GroupPtr>& groups) {
  // Apart, for MAX of gloo drops what is no number.
  const at::Tensor is_lost = at::isnan(own);
  at::Tensor both = at::stack({own.masked_fill(is_lost, 0.0), is_lost.to(at::kDouble)});
  for (const session::GroupPtr& group : groups) {
    session.all_reduce(what, both, *group, operation_of(norm_type));
  }
  const at::Tensor norm = std::isinf(norm_type) ? both[0] : both[0].pow(1 / norm_type);
  return norm.masked_fill(both[1] > 0, std::numeric_limits<double>::quiet_NaN());
}

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
  std::vector<session::GroupPtr> groups;
  if (session.mesh().size(Group::kMp) > 1) {
    groups.push_back(session.groups().internal_group(Group::kMp));
  }
  const at::Tensor norm = norm_over_ranks(session, what, total, norm_type, groups);
  const at::Tensor factor = (max_norm / (norm + kLeastNorm)).clamp_max(1.0);
  for (const auto* all : {&gradients.slices, &gradients.whole}) {
    for (const at::Tensor& gradient : *all) gradient.mul_(factor.to(gradient.scalar_type()));
  }
  return norm;
}

}  // namespace smp::sharding
