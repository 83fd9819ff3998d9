// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/shard_gradients.h"

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/sharding/flatten.h"

namespace smp::sharding {
namespace {

void refuse_sparse(const StoredParameter& parameter) {
  const at::Tensor& grad = parameter.tensor.grad();
  if (!grad.defined() || !grad.is_sparse()) return;
  throw UserCodeError(
      "the gradient of parameter {} is sparse; sharding takes none: make its layer without "
      "sparse=True",
      parameter.name);
}

/// Takes the gradient of a unit's only parameter if it lies as a flat one of `type` does, or else
/// nothing.
at::Tensor take_whole(ShardedUnit& unit, at::ScalarType type) {
  if (unit.parameters.size() != 1) return {};
  at::Tensor& grad = unit.parameters[0].tensor.mutable_grad();
  const bool alike = grad.defined() && grad.scalar_type() == type && grad.is_contiguous() &&
                     unit.layout.parameters[0].elements == unit.layout.padded;
  return alike ? std::exchange(grad, at::Tensor()).view({-1}) : at::Tensor();
}

void forget_arrivals(ShardedUnit& unit) {
  unit.arrived.assign(unit.parameters.size(), 0);
  unit.arrivals = 0;
}

}  // namespace

ShardGradients::ShardGradients(Options options, const std::vector<ReplicationGroup>& groups,
                               const std::vector<StoredParameter>& parameters,
                               const std::vector<int>& unit_of, std::vector<ShardedUnit>& units,
                               std::vector<Arena>& arenas)
    : options_(options),
      parameters_(parameters),
      unit_of_(unit_of),
      units_(units),
      arenas_(arenas),
      replicas_(units, arenas, options.bucket),
      place_of_(parameters.size()),
      came_(parameters.size()) {
  for (ShardedUnit& unit : units) {
    forget_arrivals(unit);
    for (std::size_t place = 0; place < unit.layout.parameters.size(); ++place) {
      place_of_[static_cast<std::size_t>(unit.layout.parameters[place].parameter)] = place;
    }
  }
  for (const ReplicationGroup& one : groups) {
    buckets_.emplace_back(
        *one.exchange, options.bucket,
        [this](int unit) {
          return ReduceScatterBuckets::Size{.shard = at(unit).layout.shard,
                                            .master = at(unit).master.scalar_type()};
        },
        [this](int unit, const at::Tensor& sum) { add_sum(unit, sum); });
  }
}

void ShardGradients::begin_step(bool due, int backwards) {
  backwards_left_ = due && options_.on_demand ? backwards : 0;
}

void ShardGradients::note(std::size_t parameter, const at::Tensor& gradient) {
  if (!gradient.defined()) return;
  const at::NoGradGuard no_grad;
  refuse_sparse(parameters_[parameter]);
  came_[parameter] = 1;
  const int number = unit_of_[parameter];
  ShardedUnit& unit = at(number);
  if (!options_.on_demand) {
    keep(parameter);
    return;
  }
  // One may come more than once, as where its layer is in two recomputed parts.
  if (std::exchange(unit.arrived[place_of_[parameter]], 1) != 0) return;
  if (++unit.arrivals == unit.parameters.size()) complete(number);
}

void ShardGradients::keep(std::size_t parameter) {
  ShardedUnit& unit = at(unit_of_[parameter]);
  if (unit.full.scalar_type() == unit.master.scalar_type()) return;  // .grad adds up itself
  at::Tensor& grad = parameters_[parameter].tensor.mutable_grad();
  if (unit.layout.degree == 1) {
    add_own(unit_of_[parameter], parameter, grad);
  } else {
    at::Tensor& wide = wide_[parameter];
    wide = wide.defined() ? wide.add_(grad) : grad.to(unit.master.scalar_type());
  }
  grad.reset();
}

/// In a group of one: into the flat gradient. On the CPU at once, so that the memory is free; on a
/// GPU many by one kernel.
void ShardGradients::add_own(int number, std::size_t parameter, const at::Tensor& grad) {
  begin_adding();
  ShardedUnit& unit = at(number);
  if (own_.unit != number) flush_own();
  if (std::exchange(unit.fresh, false)) unit.written.assign(unit.parameters.size(), 0);
  for (std::size_t place = 0; place < unit.parameters.size(); ++place) {
    const PlacedParameter& placed = unit.layout.parameters[place];
    if (static_cast<std::size_t>(placed.parameter) != parameter) continue;
    // Once more within a backward, as where it is used in two recomputed parts.
    const auto is_same = [&](const FlatPart& part) { return part.offset == placed.offset; };
    if (std::ranges::any_of(own_.parts, is_same)) flush_own();
    FlatPart part{
        .offset = placed.offset, .elements = placed.elements, .source = grad, .added = {}};
    if (std::exchange(unit.written[place], 1) != 0) {
      part.added = unit.gradient.narrow(0, placed.offset, placed.elements);
    }
    own_.unit = number;
    own_.elements += placed.elements;
    own_.parts.push_back(std::move(part));
  }
  if (unit.gradient.is_cpu() || own_.elements >= options_.bucket) flush_own();
}

void ShardGradients::flush_own() {
  if (!own_.parts.empty()) flatten(at(own_.unit).gradient, own_.parts);
  own_ = {};
}

/// Zeros for parameters that no gradient came for.
void ShardGradients::clear_unwritten() {
  for (ShardedUnit& unit : units_) {
    if (unit.fresh || unit.layout.degree > 1) continue;
    for (std::size_t place = 0; place < unit.written.size(); ++place) {
      if (std::exchange(unit.written[place], 1) != 0) continue;
      const PlacedParameter& placed = unit.layout.parameters[place];
      unit.gradient.narrow(0, placed.offset, placed.elements).zero_();
    }
  }
}

/// Takes the gradients of a unit to be reduced.
void ShardGradients::complete(int number) {
  ShardedUnit& unit = at(number);
  forget_arrivals(unit);
  if (unit.layout.degree > 1) {
    const auto group = static_cast<std::size_t>(unit.parameters[0].group);
    buckets_.at(group).add(number, take_flat(unit));
  } else {
    for (std::size_t place = 0; place < unit.parameters.size(); ++place) {
      at::Tensor grad = std::exchange(unit.parameters[place].tensor.mutable_grad(), at::Tensor());
      const auto index = static_cast<std::size_t>(unit.layout.parameters[place].parameter);
      if (grad.defined()) add_own(number, index, grad);
    }
  }
}

/// The gradients of a unit end to end, zeros where there are none. On the CPU each is given back as
/// soon as it is copied, so that there are hardly two copies at any time; a GPU takes one kernel.
at::Tensor ShardGradients::take_flat(ShardedUnit& unit) {
  const at::ScalarType type =
      options_.on_demand ? unit.full.scalar_type() : unit.master.scalar_type();
  if (at::Tensor whole = take_whole(unit, type); whole.defined()) return whole;
  at::Tensor flat = at::empty({unit.layout.padded}, unit.full.options().dtype(type));
  std::vector<FlatPart> parts;
  const auto flush = [&] {
    flatten(flat, parts);
    parts.clear();
  };
  std::int64_t end = 0;
  const auto pad_until = [&](std::int64_t offset) {
    if (end < offset) {
      parts.push_back({.offset = end, .elements = offset - end, .source = {}, .added = {}});
    }
  };
  for (std::size_t place = 0; place < unit.parameters.size(); ++place) {
    const PlacedParameter& placed = unit.layout.parameters[place];
    pad_until(placed.offset);
    end = placed.offset + placed.elements;
    FlatPart part{.offset = placed.offset, .elements = placed.elements, .source = {}, .added = {}};
    part.source = std::exchange(unit.parameters[place].tensor.mutable_grad(), at::Tensor());
    const auto wide = wide_.find(static_cast<std::size_t>(placed.parameter));
    if (wide != wide_.end()) {
      part.added = std::move(wide->second);
      wide_.erase(wide);
    }
    parts.push_back(std::move(part));
    if (flat.is_cpu()) flush();
  }
  pad_until(unit.layout.padded);
  flush();
  return flat;
}

/// Adds the sum over the group's ranks to this rank's shard of a unit.
void ShardGradients::add_sum(int number, const at::Tensor& sum) {
  begin_adding();
  ShardedUnit& unit = at(number);
  if (replicas_.started(number)) {
    at::Tensor& late = late_[number];
    late = late.defined() ? late.add_(sum) : sum.clone();
    return;
  }
  if (std::exchange(unit.fresh, false)) {
    unit.gradient.copy_(sum);
  } else {
    unit.gradient.add_(sum);
  }
  if (backwards_left_ == 1) replicas_.set_final(number);
}

void ShardGradients::end_backward() {
  const at::NoGradGuard no_grad;
  for (std::size_t number = 0; number < units_.size(); ++number) {
    if (options_.on_demand && units_[number].arrivals > 0) complete(static_cast<int>(number));
  }
  flush();
  if (backwards_left_ > 0) --backwards_left_;
}

void ShardGradients::flush() {
  flush_own();
  for (ReduceScatterBuckets& buckets : buckets_) buckets.flush();
}

void ShardGradients::finish_step(bool due) {
  const at::NoGradGuard no_grad;
  end_backward();
  backwards_left_ = 0;
  if (!due) return;
  if (!options_.on_demand) {
    for (std::size_t number = 0; number < units_.size(); ++number) {
      if (units_[number].trained) complete(static_cast<int>(number));
    }
    flush();
  }
  begin_adding();
  clear_unwritten();
  replicas_.finish();
  add_late();
  for (Arena& arena : arenas_) {
    if (arena.group.divisor > 1) arena.gradient.div_(arena.group.divisor);
  }
  averaged_ = true;
}

/// One more round for what came when it was not expected, if any replica has such.
void ShardGradients::add_late() {
  if (!options_.on_demand || !replicas_.any(!late_.empty())) return;
  for (std::size_t number = 0; number < units_.size(); ++number) {
    ShardedUnit& unit = units_[number];
    if (!unit.trained) continue;
    at::Tensor sum = std::exchange(late_[static_cast<int>(number)], at::Tensor());
    if (!sum.defined()) sum = at::zeros_like(unit.gradient);
    ShardExchange::Sum pending = unit.group.exchange->start_sum(sum);
    unit.group.exchange->wait(pending);
    unit.gradient.add_(sum);
  }
  late_.clear();
}

void ShardGradients::zero() {
  SMP_CHECK(std::ranges::all_of(buckets_, &ReduceScatterBuckets::idle),
            "gradients were zeroed within a backward");
  for (ShardedUnit& unit : units_) {
    unit.fresh = true;
    forget_arrivals(unit);
    for (StoredParameter& parameter : unit.parameters) parameter.tensor.mutable_grad().reset();
  }
  wide_.clear();
  own_ = {};
  averaged_ = false;
  came_.assign(came_.size(), 0);
}

void ShardGradients::forget(const std::vector<int>& parameters) {
  for (const int parameter : parameters) {
    const auto index = static_cast<std::size_t>(parameter);
    parameters_.at(index).tensor.mutable_grad().reset();
    wide_.erase(index);
    came_.at(index) = 0;
  }
}

std::vector<int> ShardGradients::unreached() const {
  std::vector<int> missing;
  for (std::size_t parameter = 0; parameter < came_.size(); ++parameter) {
    const bool trained = units_[static_cast<std::size_t>(unit_of_[parameter])].trained;
    if (trained && came_[parameter] == 0) missing.push_back(static_cast<int>(parameter));
  }
  return missing;
}

void ShardGradients::clear_fresh() {
  const at::NoGradGuard no_grad;
  for (ShardedUnit& unit : units_) {
    if (unit.trained && std::exchange(unit.fresh, false)) unit.gradient.zero_();
  }
}

/// Gradients of an earlier step that were averaged and not zeroed are to count once more.
void ShardGradients::begin_adding() {
  if (!std::exchange(averaged_, false)) return;
  for (Arena& arena : arenas_) {
    arena.gradient.mul_(arena.group.divisor).div_(arena.group.exchange->replicas());
  }
}

}  // namespace smp::sharding
