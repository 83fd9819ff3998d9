// SPDX-License-Identifier: Apache-2.0
// Python's view of smp_runtime/sharding.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/utils/pybind.h>

#include "smp_runtime/python/bindings.h"
#include "smp_runtime/python/wait_watch_handle.h"
#include "smp_runtime/sharding/flatten.h"
#include "smp_runtime/sharding/parameter_store.h"
#include "smp_runtime/sharding/plan/loss_scaler.h"

namespace smp::python {
namespace {

using sharding::LossScaler;
using sharding::ParameterStore;

std::unique_ptr<ParameterStore> make_store(
    std::vector<sharding::ReplicationGroupNames> groups, std::optional<at::ScalarType> compute_type,
    bool on_demand, std::int64_t persistence_threshold, std::int64_t bucket,
    std::int64_t most_unsharded, bool prefetch, bool cut, const std::vector<at::Tensor>& parameters,
    const std::vector<std::string>& names, const std::vector<int>& blocks,
    const std::vector<int>& group_of, std::vector<std::string> block_names) {
  sharding::StoreOptions options{.groups = std::move(groups),
                                 .compute_type = compute_type.value_or(at::ScalarType::Undefined),
                                 .on_demand = on_demand,
                                 .persistence_threshold = persistence_threshold,
                                 .bucket = bucket,
                                 .most_unsharded = most_unsharded,
                                 .prefetch = prefetch,
                                 .cut = cut};
  std::vector<sharding::StoredParameter> stored;
  for (std::size_t number = 0; number < parameters.size(); ++number) {
    stored.push_back({.tensor = parameters[number],
                      .name = names.at(number),
                      .block = blocks.at(number),
                      .group = group_of.at(number)});
  }
  const py::gil_scoped_release no_gil;
  return std::make_unique<ParameterStore>(std::move(options), std::move(stored),
                                          std::move(block_names));
}

py::dict use_of(const ParameterStore& store) {
  using namespace py::literals;
  const sharding::StoreUse use = store.use();
  return py::dict("shards"_a = use.shards, "gradients"_a = use.gradients, "live"_a = use.live,
                  "peak_live"_a = use.peak_live, "spare"_a = use.spare,
                  "persistent"_a = use.persistent);
}

py::dict traffic_of(const ParameterStore& store) {
  using namespace py::literals;
  const auto traffic = store.traffic();
  return py::dict("gathered"_a = traffic.gathered_bytes, "reduced"_a = traffic.reduced_bytes,
                  "replicas"_a = traffic.replica_bytes);
}

py::dict prefetched_of(const ParameterStore& store) {
  using namespace py::literals;
  const auto prefetched = store.prefetched();
  return py::dict("expected"_a = prefetched.expected, "needs"_a = prefetched.needs,
                  "ahead"_a = prefetched.ahead, "gathers"_a = prefetched.gathers);
}

}  // namespace

void bind_sharding(py::module_& module) {
  using no_gil = py::call_guard<py::gil_scoped_release>;

  py::class_<LossScaler>(module, "LossScaler", "The loss scale of 16-bit training.")
      .def(py::init([](bool dynamic, double scale, double factor, std::int64_t window, double least,
                       std::int64_t delayed_shift, bool consecutive_hysteresis) {
             return LossScaler({.dynamic = dynamic,
                                .scale = scale,
                                .factor = factor,
                                .window = window,
                                .least = least,
                                .delayed_shift = delayed_shift,
                                .consecutive_hysteresis = consecutive_hysteresis});
           }),
           py::kw_only(), py::arg("dynamic"), py::arg("scale"), py::arg("factor") = 2.0,
           py::arg("window") = 1000, py::arg("least") = 1.0, py::arg("delayed_shift") = 1,
           py::arg("consecutive_hysteresis") = false)
      .def_property("scale", &LossScaler::scale, &LossScaler::set_scale)
      .def_property_readonly("dynamic", &LossScaler::dynamic)
      .def("update", &LossScaler::update, py::arg("overflow"))
      .def("state",
           [](const LossScaler& scaler) {
             const auto state = scaler.state();
             return std::tuple(state.scale, state.good_steps, state.patience);
           })
      .def(
          "restore",
          [](LossScaler& scaler, const std::tuple<double, std::int64_t, std::int64_t>& state) {
            scaler.restore({.scale = std::get<0>(state),
                            .good_steps = std::get<1>(state),
                            .patience = std::get<2>(state)});
          },
          py::arg("state"));

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
      py::arg("added"), no_gil(), "Lays tensors, or sums of two, end to end; None is zeros.");

  py::class_<sharding::OwnedPiece>(module, "OwnedPiece", "A run of masters of one parameter.")
      .def_readonly("parameter", &sharding::OwnedPiece::parameter)
      .def_readonly("start", &sharding::OwnedPiece::start)
      .def_readonly("elements", &sharding::OwnedPiece::elements)
      .def_readonly("arena", &sharding::OwnedPiece::arena)
      .def_readonly("offset", &sharding::OwnedPiece::offset);

  py::class_<sharding::EvenShare>(module, "EvenShare", "A rank's part of one parameter by itself.")
      .def_readonly("start", &sharding::EvenShare::start)
      .def_readonly("elements", &sharding::EvenShare::elements)
      .def_readonly("length", &sharding::EvenShare::length);

  py::class_<sharding::ReplicationGroupNames>(
      module, "ReplicationGroupNames", "Ranks that hold parameters alike: names of c10d groups.")
      .def(
          py::init([](std::string shard_group, std::string control_group, std::string replica_group,
                      std::string across_hosts_group, std::string within_host_group,
                      std::vector<int> ranks, const std::shared_ptr<WaitWatchHandle>& watch,
                      int index, std::int64_t divisor) {
            return sharding::ReplicationGroupNames{
                .exchange = {.shard_group = std::move(shard_group),
                             .control_group = std::move(control_group),
                             .replica_group = std::move(replica_group),
                             .across_hosts_group = std::move(across_hosts_group),
                             .within_host_group = std::move(within_host_group),
                             .ranks = std::move(ranks),
                             .watch = watch_of(watch),
                             .unit_name = {}},
                .index = index,
                .divisor = divisor};
          }),
          py::kw_only(), py::arg("shard_group"), py::arg("control_group"), py::arg("replica_group"),
          py::arg("across_hosts_group") = "", py::arg("within_host_group") = "", py::arg("ranks"),
          py::arg("watch"), py::arg("index"), py::arg("divisor"));

  py::class_<ParameterStore>(module, "ParameterStore",
                             "Parameters, gradients and masters, sharded over a c10d group.")
      .def(py::init(&make_store), py::kw_only(), py::arg("groups"), py::arg("compute_type"),
           py::arg("on_demand"), py::arg("persistence_threshold"), py::arg("bucket"),
           py::arg("most_unsharded"), py::arg("prefetch") = true, py::arg("cut") = true,
           py::arg("parameters"), py::arg("names"), py::arg("blocks"), py::arg("group_of"),
           py::arg("block_names"))
      .def("units",
           [](const ParameterStore& store) {
             py::list units;
             for (const auto& layout : store.layouts()) {
               std::vector<int> parameters;
               for (const auto& placed : layout.parameters) parameters.push_back(placed.parameter);
               using namespace py::literals;
               units.append(py::dict("parameters"_a = parameters, "block"_a = layout.block,
                                     "persistent"_a = layout.persistent,
                                     "elements"_a = layout.padded));
             }
             return units;
           })
      .def("unit_of_parameters", &ParameterStore::unit_of_parameters)
      .def("begin_pass", &ParameterStore::begin_pass, py::arg("training"))
      .def("begin_step", &ParameterStore::begin_step, py::arg("due"), py::arg("backwards"))
      .def("enter", &ParameterStore::enter, py::arg("units"), no_gil())
      .def("read", &ParameterStore::read, py::arg("unit"), no_gil())
      .def("leave", &ParameterStore::leave, py::arg("outputs"), py::arg("failed"), no_gil())
      .def("end_backward", &ParameterStore::end_backward, no_gil())
      .def("finish_step", &ParameterStore::finish_step, py::arg("due"), no_gil())
      .def("masters", &ParameterStore::masters)
      .def("gradients", &ParameterStore::gradients)
      .def("pieces", &ParameterStore::pieces)
      .def("not_finite", &ParameterStore::not_finite, no_gil())
      .def("zero_gradients", &ParameterStore::zero_gradients)
      .def("publish", &ParameterStore::publish, no_gil())
      .def("accept_writes", &ParameterStore::accept_writes)
      .def("whole_unit", &ParameterStore::whole_unit, py::arg("unit"), no_gil())
      .def("even_shares", &ParameterStore::even_shares, py::arg("parameters"))
      .def("copy_even_shares", &ParameterStore::copy_even_shares, py::arg("parameters"),
           py::arg("targets"), no_gil())
      .def("assign", &ParameterStore::assign, py::arg("parameter"), py::arg("value"), no_gil())
      .def("use", &use_of)
      .def("traffic", &traffic_of)
      .def("prefetched", &prefetched_of);
}

}  // namespace smp::python
