// SPDX-License-Identifier: Apache-2.0
// Python's view of masters and of the steps over them: smp_runtime/sharding.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/utils/pybind.h>

#include "smp_runtime/python/bindings.h"
#include "smp_runtime/python/deadlock_detector_handle.h"
#include "smp_runtime/sharding/gradient_clipping.h"
#include "smp_runtime/sharding/mixed_precision_steps.h"

namespace smp::python {
namespace {

namespace py = pybind11;
using sharding::LossScaler;
using sharding::MasterOptions;
using sharding::MasterParameters;
using sharding::MasterRun;
using sharding::MixedPrecisionSteps;
using sharding::ParameterStore;

// Deleted without Python's lock, which c10d's groups want to be gone when they end.
using MastersOwner = std::unique_ptr<MasterParameters, DeleteWithoutLock>;

MastersOwner make_masters(session::Session& session, ParameterStore& store,
                          const std::vector<std::vector<std::int64_t>>& shapes,
                          const std::vector<int>& group_of, const std::vector<bool>& whole,
                          const std::vector<bool>& counts, int groups, bool one_parameter_each,
                          const std::optional<session::GroupPtr>& control,
                          std::function<at::Tensor(const at::Tensor&)> make_leaf) {
  MasterOptions options{.origins = {},
                        .groups = groups,
                        .one_parameter_each = one_parameter_each,
                        .control = control.value_or(nullptr),
                        .make_leaf = std::move(make_leaf)};
  for (std::size_t number = 0; number < shapes.size(); ++number) {
    options.origins.push_back({.shape = shapes[number],
                               .group = group_of.at(number),
                               .is_whole = whole.at(number),
                               .counts = counts.at(number)});
  }
  const py::gil_scoped_release no_gil;
  return MastersOwner(new MasterParameters(session, store, std::move(options)));
}

void bind_loss_scaler(py::module_& module) {
  py::class_<LossScaler>(module, "LossScaler",
                         "The scale of fp16, by the overflows that it is told;\n"
                         "sharding/torch_free/loss_scaler.h.")
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
}

}  // namespace

void bind_masters(py::module_& module) {
  using no_gil = py::call_guard<py::gil_scoped_release>;
  bind_loss_scaler(module);

  py::class_<MasterRun>(
      module, "MasterRun",
      "A stretch of the masters, and the parameter that the optimizer steps for it.")
      .def_readonly("arena", &MasterRun::arena)
      .def_readonly("offset", &MasterRun::offset)
      .def_readonly("elements", &MasterRun::elements)
      .def_readonly("group", &MasterRun::group)
      .def_readonly("pieces", &MasterRun::pieces)
      .def_readonly("parameter", &MasterRun::parameter)
      .def("slice_of", &MasterRun::slice_of, py::arg("piece"), py::arg("tensor"),
           "What of a tensor of as many elements belongs to ``piece``; shares its memory.");

  py::class_<MasterParameters, MastersOwner>(module, "MasterParameters",
                                             "What an optimizer steps where state is sharded or\n"
                                             "16-bit; sharding/master_parameters.h.")
      .def(py::init(&make_masters), py::kw_only(), py::arg("session"), py::arg("store"),
           py::arg("shapes"), py::arg("group_of"), py::arg("whole"), py::arg("counts"),
           py::arg("groups"), py::arg("one_parameter_each"), py::arg("control"),
           py::arg("make_leaf"), py::keep_alive<1, 2>(), py::keep_alive<1, 3>())
      .def_property_readonly("runs", &MasterParameters::runs,
                             py::return_value_policy::reference_internal)
      .def("flat_groups", &MasterParameters::flat_groups)
      .def("add", &MasterParameters::add, py::arg("parameters"), py::arg("group"), no_gil(),
           "These are in ``group`` from now on: more runs, behind those that are there.")
      .def("show_gradients", &MasterParameters::show_gradients, py::arg("visible"), no_gil())
      .def("clear_gradients", &MasterParameters::clear_gradients, no_gil(),
           "Zeros in the store for these parameters, and the runs show none.")
      .def("norm", &MasterParameters::norm, py::arg("norm_type"), no_gil(),
           "Of the gradients of these. Collective over a copy of the model.")
      .def("norms_by_number", &MasterParameters::norms_by_number, py::arg("powers"),
           py::arg("norm_type"), no_gil());

  py::class_<MixedPrecisionSteps>(
      module, "MixedPrecisionSteps",
      "From gradients to updated masters; sharding/mixed_precision_steps.h.")
      .def(py::init([](session::Session& session, ParameterStore& store, LossScaler& scaler,
                       bool scaled, double clipping) {
             return MixedPrecisionSteps(session, store, scaler,
                                        {.scaled = scaled, .clipping = clipping});
           }),
           py::kw_only(), py::arg("session"), py::arg("store"), py::arg("scaler"),
           py::arg("scaled"), py::arg("clipping"), py::keep_alive<1, 2>(), py::keep_alive<1, 3>(),
           py::keep_alive<1, 4>())
      .def("add", &MixedPrecisionSteps::add, py::arg("masters"), py::keep_alive<1, 2>(), no_gil(),
           "One more optimizer steps over the store.")
      .def("remove", &MixedPrecisionSteps::remove, py::arg("masters"), no_gil())
      .def("begin_accumulation", &MixedPrecisionSteps::begin_accumulation, no_gil(),
           "A step is about to add to gradients that an update has left.")
      .def("begin", &MixedPrecisionSteps::begin, no_gil())
      .def("unscale", &MixedPrecisionSteps::unscale, no_gil(),
           "Gradients become those of the loss itself, once. Where some are not finite,\n"
           "``overflow`` is True on all ranks if ``scaled``; else raises.")
      .def("clip", &MixedPrecisionSteps::clip, py::arg("max_norm"), py::arg("norm_type"), no_gil(),
           "Returns the norm over the whole model before clipping; -1 after an overflow.")
      .def("begin_update", &MixedPrecisionSteps::begin_update, no_gil(),
           "What gradients are still to be multiplied by; None where no update may follow.")
      .def("apply_factor", &MixedPrecisionSteps::apply_factor, no_gil())
      .def("end_update", &MixedPrecisionSteps::end_update, no_gil(),
           "The masters were changed: modules see them. Collective over the shard group.")
      .def_property_readonly("overflow", &MixedPrecisionSteps::overflow)
      .def_property_readonly("last_norm", &MixedPrecisionSteps::last_norm);

  module.def(
      "clip_gradients",
      [](session::Session& session, const std::string& what, std::vector<at::Tensor> slices,
         std::vector<at::Tensor> whole, double max_norm, double norm_type,
         const at::Device& device) {
        return sharding::clip_gradients(session, what, {std::move(slices), std::move(whole)},
                                        max_norm, norm_type, device);
      },
      py::kw_only(), py::arg("session"), py::arg("what"), py::arg("slices"), py::arg("whole"),
      py::arg("max_norm"), py::arg("norm_type"), py::arg("device"), no_gil(),
      "Scales gradients to a norm of at most ``max_norm`` over the whole model. Returns the norm\n"
      "before that. Collective over the model-parallel group; sharding/gradient_clipping.h.");
}

}  // namespace smp::python
