// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/sharded_unit.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include "smp_runtime/core/error.h"

namespace smp::sharding {
namespace {

constexpr std::int64_t kAlignmentBytes = 128;  // shards that start aligned are gathered faster

/// Complex parameters keep their type: for none of 16 bits there is what computes in it.
bool keeps_type(const UnitOptions& options, const ShardedUnit& unit) {
  return options.compute_type == at::ScalarType::Undefined ||
         unit.parameters.front().tensor.is_complex();
}

at::ScalarType computing_type(const UnitOptions& options, const ShardedUnit& unit) {
  return keeps_type(options, unit) ? unit.parameters.front().tensor.scalar_type()
                                   : options.compute_type;
}

at::ScalarType master_type(const UnitOptions& options, const ShardedUnit& unit) {
  const bool is_own = keeps_type(options, unit) || !unit.trained;
  return is_own ? computing_type(options, unit) : at::kFloat;
}

class Maker {
 public:
  Maker(const UnitOptions& options, const std::vector<StoredParameter>& parameters)
      : options_(options), parameters_(parameters) {}

  ShardedModel make(const std::vector<std::string>& block_names) {
    const at::NoGradGuard no_grad;
    plan(block_names);
    make_arenas();
    return std::move(model_);
  }

 private:
  void plan(const std::vector<std::string>& block_names) {
    std::map<std::tuple<at::ScalarType, bool, int>, int> kinds;
    int most = 1;
    std::vector<ParameterSize> sizes;
    for (const StoredParameter& parameter : parameters_) {
      SMP_CHECK(parameter.tensor.is_floating_point() || parameter.tensor.is_complex(),
                "{} is of type {}", parameter.name, toString(parameter.tensor.scalar_type()));
      const std::tuple kind{parameter.tensor.scalar_type(), parameter.tensor.requires_grad(),
                            parameter.group};
      const int number = kinds.try_emplace(kind, static_cast<int>(kinds.size())).first->second;
      const int degree = group_of(parameter).exchange->degree();
      most = std::max(most, degree);
      sizes.push_back({.elements = parameter.tensor.numel(),
                       .block = parameter.block,
                       .kind = number,
                       .degree = degree});
    }
    const bool whole = !options_.on_demand || most == 1;
    model_.layouts = plan_units(
        sizes, {// Whole parameters are gathered once a step: there balance counts for more.
                .alignment = whole ? 1 : kAlignmentBytes / 2,
                .persistence_threshold = whole ? std::numeric_limits<std::int64_t>::max()
                                               : options_.persistence_threshold,
                // Whole parameters balance best where all of them may go anywhere.
                .persistent_unit = options_.cut ? std::max<std::int64_t>(1, options_.bucket)
                                                : std::numeric_limits<std::int64_t>::max(),
                .cut = options_.cut});
    model_.unit_of.resize(parameters_.size());
    for (std::size_t number = 0; number < model_.layouts.size(); ++number) {
      ShardedUnit unit;
      unit.layout = model_.layouts[number];
      unit.always_unsharded = unit.layout.persistent;
      for (const PlacedParameter& placed : unit.layout.parameters) {
        const auto index = static_cast<std::size_t>(placed.parameter);
        unit.parameters.push_back(parameters_[index]);
        model_.unit_of[index] = static_cast<int>(number);
      }
      unit.group = group_of(unit.parameters.front());
      unit.trained = unit.parameters.front().tensor.requires_grad();
      unit.name = unit.always_unsharded
                      ? fmt::format("the small parameters from {} on", unit.parameters[0].name)
                      : fmt::format("module {}",
                                    block_names.at(static_cast<std::size_t>(unit.layout.block)));
      model_.units.push_back(std::move(unit));
    }
  }

  void make_arenas() {
    using Kind = std::pair<at::ScalarType, int>;                 // and the group's number
    std::map<Kind, std::pair<std::size_t, std::int64_t>> sizes;  // number, elements
    for (ShardedUnit& unit : model_.units) {
      if (!unit.trained) continue;
      auto& [number, elements] =
          sizes
              .try_emplace(Kind{master_type(options_, unit), unit.parameters[0].group},
                           sizes.size(), std::int64_t{0})
              .first->second;
      unit.arena = number;
      unit.arena_offset = elements;
      elements += unit.layout.shard;
    }
    model_.arenas.resize(sizes.size());
    const at::TensorOptions device =
        model_.units.empty() ? at::TensorOptions() : model_.units[0].parameters[0].tensor.options();
    for (const auto& [kind, size] : sizes) {
      const auto& [type, number] = kind;
      Arena& arena = model_.arenas[size.first];
      arena.master = at::zeros({size.second}, device.dtype(type));
      arena.gradient = at::zeros({size.second}, device.dtype(type));
      arena.group = options_.groups.at(static_cast<std::size_t>(number));
    }
  }

  [[nodiscard]] const ReplicationGroup& group_of(const StoredParameter& parameter) const {
    return options_.groups.at(static_cast<std::size_t>(parameter.group));
  }

  const UnitOptions& options_;
  const std::vector<StoredParameter>& parameters_;
  ShardedModel model_;
};

}  // namespace

std::string absence_of(const std::string& name, const ShardedUnit& unit) {
  return advised(
      fmt::format(
          "{} was read or written, and its values are sharded over {} ranks: they are whole "
          "here while {} computes. A step's function may read them, alike on all ranks",
          name.empty() ? "a slice of parameters" : "parameter " + name, unit.layout.degree,
          unit.name),
      Advice::kShardedValue);
}

ShardedModel make_units(const UnitOptions& options, const std::vector<StoredParameter>& parameters,
                        const std::vector<std::string>& block_names) {
  return Maker(options, parameters).make(block_names);
}

void fill_unit(const UnitOptions& options, const std::vector<StoredParameter>& parameters,
               std::vector<Arena>& arenas, ShardedUnit& unit) {
  const at::NoGradGuard no_grad;
  const at::ScalarType type = computing_type(options, unit);
  const at::TensorOptions device = unit.parameters[0].tensor.options();
  unit.full = at::zeros({unit.layout.padded}, device.dtype(type));
  unit.written.assign(unit.parameters.size(), 1);
  if (unit.trained) {
    Arena& arena = arenas[unit.arena];
    unit.master = arena.master.narrow(0, unit.arena_offset, unit.layout.shard);
    unit.gradient = arena.gradient.narrow(0, unit.arena_offset, unit.layout.shard);
  } else {
    unit.master = at::zeros({unit.layout.shard}, device.dtype(type));
  }
  for (const Piece& piece : pieces_of(unit.layout, unit.group.index)) {
    const at::Tensor& value = parameters[static_cast<std::size_t>(piece.parameter)].tensor;
    unit.master.narrow(0, piece.offset, piece.elements)
        .copy_(value.detach().reshape({-1}).narrow(0, piece.start, piece.elements));
  }
  for (std::size_t index = 0; index < unit.parameters.size(); ++index) {
    const PlacedParameter& placed = unit.layout.parameters[index];
    unit.full.narrow(0, placed.offset, placed.elements)
        .copy_(unit.parameters[index].tensor.detach().reshape({-1}));
  }
  const at::Tensor mine =
      unit.full.narrow(0, unit.group.index * unit.layout.shard, unit.layout.shard);
  if (unit.always_unsharded) {
    unit.own = mine;
  } else {
    unit.own = type == unit.master.scalar_type() ? unit.master : mine.clone();
  }
}

}  // namespace smp::sharding
