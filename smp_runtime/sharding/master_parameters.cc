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
#include <ATen/ops/view_as_real.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/optimizer/squares.h"
#include "smp_runtime/sharding/gradient_clipping.h"

namespace smp::sharding {
namespace {

using topology::Group;

/// The largest of all elements for the infinite norm. Without copies as large as a gradient of
/// reals.
double sum_of_powers(std::vector<at::Tensor> gradients, double norm_type) {
  for (at::Tensor& gradient : gradients) {
    if (!gradient.is_complex()) continue;
    gradient = norm_type == 2 ? at::view_as_real(gradient).reshape({-1}) : gradient.abs();
  }
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

at::Tensor gradient_of(const MasterRun& run, const std::vector<at::Tensor>& gradients) {
  return gradients.at(static_cast<std::size_t>(run.arena))
      .narrow(0, run.offset, run.elements)
      .view(run.parameter.sizes());
}

}  // namespace

at::Tensor MasterRun::slice_of(const OwnedPiece& piece, const at::Tensor& tensor) const {
  return tensor.reshape({-1}).narrow(0, piece.offset - offset, piece.elements);
}

MasterParameters::MasterParameters(session::Session& session, ParameterStore& store,
                                   MasterOptions options)
    : session_(session), store_(store), options_(std::move(options)) {
  cut(std::vector<bool>(options_.origins.size(), true));
  make_leaves(0);
}

void MasterParameters::add(const std::vector<int>& parameters, int group) {
  std::vector<bool> wanted(options_.origins.size(), false);
  for (const int parameter : parameters) {
    const auto index = static_cast<std::size_t>(parameter);
    SMP_CHECK(options_.origins.at(index).group < 0, "parameter {} is in a group", parameter);
    options_.origins[index].group = group;
    wanted[index] = true;
  }
  options_.groups = std::max(options_.groups, group + 1);
  const std::size_t before = runs_.size();
  cut(wanted);
  make_leaves(before);
}

void MasterParameters::cut(const std::vector<bool>& wanted) {
  const std::size_t before = runs_.size();
  bool broken = true;  // the pieces between belong to no group
  for (const OwnedPiece& piece : store_.pieces()) {
    const auto index = static_cast<std::size_t>(piece.parameter);
    const MasterOrigin& origin = options_.origins.at(index);
    if (origin.group < 0 || !wanted[index]) {
      broken = true;
      continue;
    }
    MasterRun* const last = runs_.size() == before ? nullptr : &runs_.back();
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

void MasterParameters::make_leaves(std::size_t first) {
  const std::vector<at::Tensor> masters = store_.masters();
  for (std::size_t number = first; number < runs_.size(); ++number) {
    MasterRun& run = runs_[number];
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
  shown_ = visible;
  std::vector<at::Tensor> gradients;
  if (visible) gradients = store_.gradients();
  for (const MasterRun& run : runs_) {
    run.parameter.mutable_grad() = visible ? gradient_of(run, gradients) : at::Tensor();
  }
}

void MasterParameters::take_gradients() {
  if (!shown_) return;
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> gradients = store_.gradients();
  for (const MasterRun& run : runs_) {
    const at::Tensor own = gradient_of(run, gradients);
    at::Tensor& shown = run.parameter.mutable_grad();
    if (!shown.defined()) {
      own.zero_();
    } else if (shown.data_ptr() != own.data_ptr()) {
      own.copy_(shown);
      shown = own;
    }
  }
}

void MasterParameters::clear_gradients() {
  std::vector<int> own;
  for (std::size_t number = 0; number < options_.origins.size(); ++number) {
    if (options_.origins[number].group >= 0) own.push_back(static_cast<int>(number));
  }
  store_.zero_gradients_of(own);
  show_gradients(false);
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
  MasterParameters* const own = this;
  return norm_of_gradients(std::span(&own, 1), norm_type);
}

at::Tensor MasterParameters::norms_by_number(at::Tensor powers, double norm_type) {
  const at::NoGradGuard no_grad;
  if (options_.control) {
    session_.all_reduce("the norms of parameters", powers, *options_.control,
                        operation_of(norm_type));
  }
  return std::isinf(norm_type) ? powers : powers.pow(1 / norm_type);
}

double norm_of_gradients(std::span<MasterParameters* const> all, double norm_type) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> counted;
  for (const MasterParameters* masters : all) {
    for (at::Tensor& gradient : masters->counted_gradients()) counted.push_back(gradient);
  }
  const at::Tensor own =
      at::scalar_tensor(sum_of_powers(std::move(counted), norm_type), at::kDouble);
  MasterParameters& first = *all.front();
  return norm_over_ranks(first.session_, "the norm of gradients", own, norm_type,
                         first.copy_groups())
      .item<double>();
}

}  // namespace smp::sharding
