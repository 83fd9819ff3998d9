// SPDX-License-Identifier: Apache-2.0
// Python's view of smp_runtime/sharding.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/utils/pybind.h>

#include "smp_runtime/python/bindings.h"
#include "smp_runtime/python/deadlock_detector_handle.h"
#include "smp_runtime/sharding/flatten.h"
#include "smp_runtime/sharding/parameter_store.h"
#include "smp_runtime/sharding/remote_values.h"
#include "smp_runtime/sharding/shard_groups.h"

namespace smp::python {
namespace {

using sharding::ParameterStore;
using sharding::ShardGroups;
using sharding::ShardPlan;

// Deleted without Python's lock: its exchanges may be the last owners of the session's
// DeadlockDetector, whose thread is joined then and may wait for that lock.
using StoreOwner = std::unique_ptr<ParameterStore, DeleteWithoutLock>;

StoreOwner make_store(session::Session& session, const ShardPlan& plan,
                      const std::vector<ShardGroups>& groups,
                      const std::vector<at::Tensor>& parameters,
                      const std::vector<std::string>& names, const std::vector<int>& blocks,
                      const std::vector<int>& group_of, std::vector<std::string> block_names,
                      bool prefetch) {
  std::vector<sharding::StoredParameter> stored;
  std::int64_t elements = 0;
  for (std::size_t number = 0; number < parameters.size(); ++number) {
    elements += parameters[number].numel();
    stored.push_back({.tensor = parameters[number],
                      .name = names.at(number),
                      .block = blocks.at(number),
                      .group = group_of.at(number)});
  }
  const py::gil_scoped_release no_gil;
  sharding::StoreOptions options = sharding::store_options(session, plan, groups, elements);
  options.prefetch = prefetch;
  options.raise = &raise_in_python;
  return StoreOwner(
      new ParameterStore(std::move(options), std::move(stored), std::move(block_names)));
}

using Units = py::typing::List<py::typing::Dict<py::str, Any>>;
using Numbers = std::map<std::string, std::int64_t>;

Units units_of(const ParameterStore& store) {
  using namespace py::literals;
  Units units;
  for (const auto& layout : store.layouts()) {
    std::vector<int> parameters;
    for (const auto& placed : layout.parameters) parameters.push_back(placed.parameter);
    units.append(py::dict("parameters"_a = parameters, "block"_a = layout.block,
                          "persistent"_a = layout.persistent, "elements"_a = layout.padded));
  }
  return units;
}

Numbers use_of(const ParameterStore& store) {
  const sharding::StoreUse use = store.use();
  return {{"shards", use.shards}, {"gradients", use.gradients},
          {"live", use.live},     {"peak_live", use.peak_live},
          {"spare", use.spare},   {"persistent", use.persistent}};
}

Numbers traffic_of(const ParameterStore& store) {
  const auto traffic = store.traffic();
  return {{"gathered", traffic.gathered_bytes},
          {"reduced", traffic.reduced_bytes},
          {"replicas", traffic.replica_bytes}};
}

Numbers prefetched_of(const ParameterStore& store) {
  const auto prefetched = store.prefetched();
  return {{"expected", prefetched.expected},
          {"needs", prefetched.needs},
          {"ahead", prefetched.ahead},
          {"gathers", prefetched.gathers}};
}

}  // namespace

void bind_sharding(py::module_& module) {
  using no_gil = py::call_guard<py::gil_scoped_release>;

  module.def(
      "flatten",
      [](const at::Tensor& flat, const std::vector<std::int64_t>& offsets,
         const std::vector<std::int64_t>& elements,
         const std::vector<std::optional<at::Tensor>>& sources,
         const std::vector<std::optional<at::Tensor>>& added) {
        std::vector<sharding::FlatPart> parts;
        for (std::size_t i = 0; i < offsets.size(); ++i) {
          parts.push_back({.offset = offsets[i],
                           .elements = elements.at(i),
                           .source = sources.at(i).value_or(at::Tensor()),
                           .added = added.at(i).value_or(at::Tensor())});
        }
        sharding::flatten(flat, parts);
      },
      py::arg("flat"), py::arg("offsets"), py::arg("elements"), py::arg("sources"),
      py::arg("added"), no_gil(),
      "Fills stretches of ``flat`` with sums of two tensors, None for zeros; sharding/flatten.h.");

  py::class_<sharding::OwnedPiece>(
      module, "OwnedPiece",
      "A stretch of this rank's masters that belongs to one parameter. [elements]")
      .def_readonly("parameter", &sharding::OwnedPiece::parameter)
      .def_readonly("start", &sharding::OwnedPiece::start)
      .def_readonly("elements", &sharding::OwnedPiece::elements)
      .def_readonly("arena", &sharding::OwnedPiece::arena)
      .def_readonly("offset", &sharding::OwnedPiece::offset);

  py::class_<ShardPlan>(module, "ShardPlan",
                        "How many ranks share state, and how; sharding/shard_groups.h.")
      .def_readonly("degree", &ShardPlan::degree)
      .def_readonly("own_degree", &ShardPlan::own_degree)
      .def_readonly("on_demand", &ShardPlan::on_demand)
      .def_readonly("cut", &ShardPlan::cut)
      .def_property_readonly("cuts_parameters", &ShardPlan::cuts_parameters)
      .def("without_cuts", [](ShardPlan plan) {
        plan.cut = false;
        return plan;
      });
  module.def(
      "plan_shards",
      [](const session::Session& session) {
        return sharding::plan_shards(session.config(), session.mesh());
      },
      py::arg("session"), "None where the settings leave a model's state as it is.");

  const auto group = [](session::GroupPtr ShardGroups::*member) {
    return [member](const ShardGroups& self) { return or_none(self.*member); };
  };
  py::class_<ShardGroups, std::unique_ptr<ShardGroups, DeleteWithoutLock>>(
      module, "ShardGroups",
      "The c10d groups of this rank among those that hold some parameters alike; None where it\n"
      "is alone.")
      .def_readonly("degree", &ShardGroups::degree)
      .def_readonly("index", &ShardGroups::index)
      .def_readonly("ranks", &ShardGroups::ranks)
      .def_property_readonly("shards", group(&ShardGroups::shards))
      .def_property_readonly("control", group(&ShardGroups::control))
      .def_property_readonly(
          "across_hosts", group(&ShardGroups::across_hosts),
          "With within_host the two steps of a hierarchical all-gather, where ranks lie evenly\n"
          "on several hosts; else None.")
      .def_property_readonly("within_host", group(&ShardGroups::within_host));
  module.def("make_shard_groups", &sharding::make_shard_groups, py::arg("session"), py::arg("plan"),
             no_gil(), "Collective over the data-parallel ranks.");

  py::class_<sharding::RemoteValues>(
      module, "RemoteValues",
      "Makes what stands for parameters of other partitions of the pipeline, as long as it lives.")
      .def(py::init([] { return std::make_unique<sharding::RemoteValues>(&raise_in_python); }))
      .def("placeholder", &sharding::RemoteValues::placeholder, py::arg("like"), py::arg("sizes"),
           py::arg("name"), py::arg("partition"),
           "Of ``sizes``, else as ``like``, without memory: an operator that reads it raises\n"
           "SMPStepError by the name.");

  py::class_<ParameterStore, StoreOwner>(
      module, "ParameterStore",
      "Parameters, gradients and masters, sharded over a group; its calls are collective and are\n"
      "explained in sharding/parameter_store.h.")
      .def(py::init(&make_store), py::kw_only(), py::arg("session"), py::arg("plan"),
           py::arg("groups"), py::arg("parameters"), py::arg("names"), py::arg("blocks"),
           py::arg("group_of"), py::arg("block_names"), py::arg("prefetch") = true)
      .def("units", &units_of)
      .def("unit_of_parameters", &ParameterStore::unit_of_parameters)
      .def("begin_pass", &ParameterStore::begin_pass, py::arg("training"))
      .def("begin_step", &ParameterStore::begin_step, py::arg("due"), py::arg("backwards"))
      .def("set_alike", &ParameterStore::set_alike, py::arg("alike"))
      .def("enter", &ParameterStore::enter, py::arg("units"), no_gil())
      .def("leave", &ParameterStore::leave, py::arg("outputs"), py::arg("failed"), no_gil())
      .def("end_backward", &ParameterStore::end_backward, no_gil())
      .def("finish_step", &ParameterStore::finish_step, py::arg("due"), no_gil())
      .def_property_readonly("has_gradients", &ParameterStore::has_gradients)
      .def_property_readonly("is_accumulating", &ParameterStore::is_accumulating)
      .def("unreached", &ParameterStore::unreached)
      .def_property_readonly("is_published", &ParameterStore::is_published)
      .def("masters", &ParameterStore::masters)
      .def("pieces", &ParameterStore::pieces)
      .def("zero_gradients", &ParameterStore::zero_gradients)
      .def("publish", &ParameterStore::publish, no_gil())
      .def("accept_writes", &ParameterStore::accept_writes)
      .def("whole_unit", &ParameterStore::whole_unit, py::arg("unit"), py::arg("arenas"), no_gil())
      .def("master_type", &ParameterStore::master_type, py::arg("parameter"),
           "Type of the master of a parameter, alike on all ranks.")
      .def("assign", &ParameterStore::assign, py::arg("parameter"), py::arg("value"), no_gil())
      .def("use", &use_of)
      .def("traffic", &traffic_of)
      .def("prefetched", &prefetched_of);
}

}  // namespace smp::python
