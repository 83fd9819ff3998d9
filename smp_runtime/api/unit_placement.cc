// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/api/unit_placement.h"

#include <set>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/partition/assignment.h"
#include "smp_runtime/partition/job_partition.h"

namespace smp::api {
namespace {

void check(const std::vector<Unit>& units, const std::map<std::string, int>& pins, int partitions) {
  std::set<std::string> names;
  for (const Unit& unit : units) {
    if (unit.name.empty()) throw ConfigError("DistributedModel: a unit has no name; give it one");
    if (!unit.forward) throw ConfigError("DistributedModel: unit \"{}\" has no forward", unit.name);
    if (!names.insert(unit.name).second) {
      throw ConfigError("DistributedModel: two units are named \"{}\"; names have to differ",
                        unit.name);
    }
  }
  if (static_cast<int>(units.size()) < partitions) {
    throw ConfigError(
        "DistributedModel: {} units for pipeline_parallel_degree={}; divide the model into more of "
        "them, or lower the degree",
        units.size(), partitions);
  }
  for (const auto& [name, place] : pins) {
    if (!names.contains(name)) {
      throw ConfigError("DistributedModel: no unit is named \"{}\"; there are {}", name,
                        fmt::join(names, ", "));
    }
    if (place < 0 || place >= partitions) {
      throw ConfigError("DistributedModel: partition {} of unit \"{}\" is not in [0, {})", place,
                        name, partitions);
    }
  }
}

/// `model` with what its units have.
partition::JobModel with_units(partition::JobModel model, const std::vector<Unit>& units) {
  std::set<const void*> known;
  for (const Unit& unit : units) {
    for (const auto& [name, parameter] : unit.parameters) {
      if (!known.insert(parameter.unsafeGetTensorImpl()).second) continue;
      model.elements += parameter.numel();
      model.parameter_bytes += static_cast<std::int64_t>(parameter.nbytes());
      model.on_gpus = parameter.is_cuda();
    }
  }
  return model;
}

/// With `follows` a unit without parameters hangs on the one before it.
partition::ModuleTree tree_of(const std::vector<Unit>& units,
                              const std::map<std::string, int>& pins, bool follows) {
  partition::ModuleTree tree;
  const int root = tree.add_module({.name = "", .passes_on = true});
  int before = root;
  std::map<const void*, int> known;
  for (const Unit& unit : units) {
    partition::Module module{.name = unit.name};
    for (const auto& [name, parameter] : unit.parameters) {
      const auto [found, is_new] = known.emplace(parameter.unsafeGetTensorImpl(), 0);
      if (is_new) {
        found->second = tree.add_parameter(fmt::format("{}.{}", unit.name, name),
                                           static_cast<std::int64_t>(parameter.nbytes()));
      }
      module.parameters.push_back(found->second);
    }
    if (const auto pin = pins.find(unit.name); pin != pins.end()) module.pin = pin->second;
    const bool hangs = follows && unit.parameters.empty();
    const int node = tree.add_module(std::move(module), hangs ? before : root);
    if (!hangs) before = node;
  }
  return tree;
}

}  // namespace

Placement place_units(const std::vector<Unit>& units, bool is_chain,
                      const std::map<std::string, int>& pins,
                      const topology::ParallelConfig& config, const std::string& partitioner,
                      partition::JobModel model) {
  const int partitions = static_cast<int>(config.pipeline_parallel_degree);
  check(units, pins, partitions);
  const bool by_hand = !pins.empty() || !config.auto_partition;
  Placement placed{.tree = tree_of(units, pins, is_chain && !by_hand), .partition = {}};
  if (by_hand) {
    placed.partition.assignment = partition::assign_manual(
        placed.tree, partitions, static_cast<int>(config.default_partition));
    partition::check_fits(placed.partition.assignment, placed.tree, partitions);
    placed.partition.summary = "Partition chosen: as Options::partition and default_partition say";
    return placed;
  }
  placed.partition =
      partition::partition_job(placed.tree, config, with_units(model, units), partitioner);
  return placed;
}

std::string units_text(const std::vector<Unit>& units) {
  std::ostringstream text;
  for (const Unit& unit : units) {
    text << '"' << unit.name << "\" with parameters of";
    for (const auto& [name, parameter] : unit.parameters) {
      text << ' ' << name << ' ' << parameter.sizes() << ' ' << parameter.scalar_type()
           << (parameter.requires_grad() ? "" : " frozen");
    }
    text << '\n';
  }
  return text.str();
}

}  // namespace smp::api
