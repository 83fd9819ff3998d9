// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/master_parameters.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/optimizer/squares.h"
#include "smp_runtime/sharding/gradient_clipping.h"

namespace smp::sharding {
namespace {

using topology::Group;

/// The largest of all elements for the infinite norm. Without copies as large as a gradient.
double sum_of_powers(const std::vector<at::Tensor>& gradients, double norm_type) {
  if (norm_type == 2) {
    std::map<at::ScalarType, std::vector<at::Tensor>> by_type;
    for (const at::Tensor& gradient : gradients) {
      by_type[gradient.scalar_type()].push_back(gradient);
    }
    double sum = 0;
    for (const auto& [type, alike] : by_type) sum += optimizer::sum_of_squares(alike);
    return sum;
  }
  return optimizer::sum_of_powers(gradients, norm_type).item<double>();
}

}  // namespace

at::Tensor MasterRun::slice_of(const OwnedPiece& piece, const at::Tensor& tensor) const {
  return tensor.reshape({-1}).narrow(0, piece.offset - offset, piece.elements);
}

MasterParameters::MasterParameters(session::Session& session, ParameterStore& store,
                                   MasterOptions options)
    : session_(session), store_(store), options_(std::move(options)) {
  cut();
  make_leaves();
}

void MasterParameters::cut() {
  bool broken = true;  // the pieces between belong to no group
  for (const OwnedPiece& piece : store_.pieces()) {
    const MasterOrigin& origin = options_.origins.at(static_cast<std::size_t>(piece.parameter));
    if (origin.group < 0) {
      broken = true;
      continue;
    }
    MasterRun* const last = runs_.empty() ? nullptr : &runs_.back();
    const bool joins = !broken && !options_.one_parameter_each && !origin.is_whole && last &&
                       last->arena == piece.arena && last->group == origin.group;
    if (joins) {
      last->elements = piece.offset + piece.elements - last->offset;
      last->pieces.push_back(piece);
    } else {
      runs_.push_back({.arena = piece.arena,
                       .offset = piece.offset,
                       .elements = piece.elements,
                       .group = origin.group,
                       .pieces = {piece},
                       .parameter = {}});
    }
    broken = false;
  }
}

void MasterParameters::make_leaves() {
  const std::vector<at::Tensor> masters = store_.masters();
  for (MasterRun& run : runs_) {
    at::Tensor value = masters.at(static_cast<std::size_t>(run.arena))
                           .narrow(0, run.offset, run.elements)
                           .detach();
    const MasterOrigin& origin =
        options_.origins[static_cast<std::size_t>(run.pieces.front().parameter)];
    if (origin.is_whole) value = value.view(origin.shape);
    run.parameter = options_.make_leaf ? options_.make_leaf(value) : value.set_requires_grad(true);
  }
}

std::vector<at::Tensor> MasterParameters::flat_groups() const {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> flat;
  for (int group = 0; group < options_.groups; ++group) {
    std::vector<at::Tensor> parts;
    for (const MasterRun& run : runs_) {
      if (run.group == group) parts.push_back(run.parameter.detach().reshape({-1}));
    }
    if (parts.empty()) {
      flat.push_back(at::empty({0}));
    } else {
      flat.push_back(parts.size() == 1 ? parts.front() : at::cat(parts));
    }
  }
  return flat;
}

void MasterParameters::show_gradients(bool visible) {
  std::vector<at::Tensor> gradients;
  if (visible) gradients = store_.gradients();
  for (const MasterRun& run : runs_) {
    at::Tensor gradient;
    if (visible) {
      gradient = gradients.at(static_cast<std::size_t>(run.arena))
                     .narrow(0, run.offset, run.elements)
                     .view(run.parameter.sizes());
    }
    run.parameter.mutable_grad() = std::move(gradient);
  }
}

std::vector<at::Tensor> MasterParameters::counted_gradients() const {
  const auto counts = [this](const OwnedPiece& piece) {
    return options_.origins[static_cast<std::size_t>(piece.parameter)].counts;
  };
  std::vector<at::Tensor> counted;
  for (const MasterRun& run : runs_) {
    const at::Tensor& gradient = run.parameter.grad();
    if (!gradient.defined()) continue;
    if (std::ranges::all_of(run.pieces, counts)) {
      counted.push_back(gradient);
      continue;
    }
    for (const OwnedPiece& piece : run.pieces) {
      if (counts(piece)) counted.push_back(run.slice_of(piece, gradient));
    }
  }
  return counted;
}

/// Together the ranks of one copy of the model.
std::vector<session::GroupPtr> MasterParameters::copy_groups() {
  std::vector<session::GroupPtr> groups;
  if (options_.control) groups.push_back(options_.control);
  for (const Group kind : {Group::kTp, Group::kPp}) {
    if (session_.mesh().size(kind) > 1) groups.push_back(session_.groups().cpu_group(kind));
  }
  return groups;
}

double MasterParameters::norm(double norm_type) {
  const at::NoGradGuard no_grad;
  const at::Tensor own =
      at::scalar_tensor(sum_of_powers(counted_gradients(), norm_type), at::kDouble);
  return norm_over_ranks(session_, "the norm of gradients", own, norm_type, copy_groups())
      .item<double>();
}

void MasterParameters::scale_gradients(double factor) {
  if (factor == 1.0) return;
  const at::NoGradGuard no_grad;
  for (const at::Tensor& gradient : store_.gradients()) gradient.mul_(factor);
}

at::Tensor MasterParameters::norms_by_number(at::Tensor powers, double norm_type) {
  const at::NoGradGuard no_grad;
  if (options_.control) {
    session_.all_reduce("the norms of parameters", powers, *options_.control,
                        operation_of(norm_type));
  }
  return std::isinf(norm_type) ? powers : powers.pow(1 / norm_type);
}

}  // namespace smp::sharding
