// SPDX-License-Identifier: Apache-2.0
// Python's view of smp_runtime/checkpoint/state. Its errors arrive as SMPCheckpointError.
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <c10/util/accumulate.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>
#include <torch/csrc/utils/pybind.h>

#include "smp_runtime/checkpoint/session/agreement.h"
#include "smp_runtime/checkpoint/state/owned_state.h"
#include "smp_runtime/checkpoint/state/saved_state.h"
#include "smp_runtime/python/bindings.h"

namespace smp::python {
namespace {

namespace py = pybind11;
using checkpoint::ObjectReader;
using checkpoint::OwnedOptimizer;
using checkpoint::OwnedState;
using checkpoint::SavedParameter;
using checkpoint::SavedState;
using checkpoint::with_files;
using sharding::MasterParameters;
using sharding::MasterRun;
using sharding::ParameterStore;

using Names = std::vector<std::string>;
using Objects = py::typing::Dict<py::str, Any>;
using Shape = py::typing::Tuple<py::int_, py::ellipsis>;
using NamedShapes = py::typing::Dict<py::str, Shape>;
using KeptShapes =
    py::typing::Dict<py::str, py::typing::Dict<py::str, py::typing::Optional<Shape>>>;
using FieldTypes = std::map<std::string, std::map<std::string, at::ScalarType>>;
using GroupList = py::typing::List<py::typing::Tuple<Objects, py::typing::List<py::str>>>;

/// A dictionary of Python with `values`.
Objects dictionary(const std::map<std::string, c10::IValue>& values) {
  Objects result;
  for (const auto& [key, value] : values) result[py::str(key)] = from_object(value);
  return result;
}

Shape tuple_of(const std::vector<std::int64_t>& shape) { return py::tuple(py::cast(shape)); }

NamedShapes shapes_of(const SavedState& saved) {
  NamedShapes shapes;
  for (const std::string& name : saved.parameter_names()) {
    const SavedParameter& parameter = saved.parameters().at(name);
    if (parameter.shape) shapes[py::str(name)] = tuple_of(*parameter.shape);
  }
  return shapes;
}

/// By parameter the shapes of what is kept for it; None for what is no tensor.
KeptShapes kept_shapes_of(const SavedState& saved) {
  KeptShapes all;
  for (const std::string& name : saved.parameter_names()) {
    const SavedParameter& parameter = saved.parameters().at(name);
    py::dict kept;
    for (const auto& [field, runs] : parameter.runs) {
      kept[py::str(field)] = tuple_of(*parameter.shape);
    }
    for (const auto& [key, value] : parameter.others) {
      kept[py::str(key)] =
          value.isTensor() ? py::object(tuple_of(value.toTensor().sizes().vec())) : py::none();
    }
    all[py::str(name)] = kept;
  }
  return all;
}

/// By parameter the types of its master, by the name kMaster, and of what is kept for each element.
FieldTypes types_of(const SavedState& saved) {
  FieldTypes all;
  for (const auto& [name, parameter] : saved.parameters()) {
    std::map<std::string, at::ScalarType>& types = all[name];
    if (saved.has_master(name)) {
      types[checkpoint::kMaster] = parameter.master.front().values.scalar_type();
    }
    for (const auto& [field, runs] : parameter.runs) {
      if (!runs.empty()) types[field] = runs.front().values.scalar_type();
    }
  }
  return all;
}

/// The master of a parameter, in its shape.
at::Tensor whole_master(const SavedState& saved, const std::string& name) {
  const std::vector<std::int64_t>& shape = *saved.parameters().at(name).shape;
  return with_files(
      [&] { return saved.master_of(name, 0, c10::multiply_integers(shape)).view(shape); });
}

Objects entries_of(const SavedState& saved) {
  Objects entries;
  for (const std::string& name : saved.entry_names()) {
    entries[py::str(name)] = from_object(saved.entries().at(name));
  }
  return entries;
}

GroupList groups_of(const SavedState& saved) {
  GroupList groups;
  for (const checkpoint::SavedGroup& group : saved.groups()) {
    groups.append(py::make_tuple(dictionary(group.settings), group.names));
  }
  return groups;
}

std::optional<std::tuple<double, std::int64_t, std::int64_t>> loss_scale_of(
    const SavedState& saved) {
  if (!saved.loss_scale()) return std::nullopt;
  return std::tuple(saved.loss_scale()->scale, saved.loss_scale()->good_steps,
                    saved.loss_scale()->patience);
}

using ObjectsByName = std::map<std::string, c10::IValue>;

/// Dictionaries of Python, one for each run.
std::map<const MasterRun*, ObjectsByName> states_by_run(const MasterParameters& masters,
                                                        const py::typing::List<Objects>& states) {
  std::map<const MasterRun*, ObjectsByName> all;
  auto state = states.begin();
  for (const MasterRun& run : masters.runs()) {
    ObjectsByName& kept = all[&run];
    for (const auto& [key, value] : py::cast<py::dict>(*state++)) {
      kept.emplace(key.cast<std::string>(), to_object(value));
    }
  }
  return all;
}

OwnedState owned_state(ParameterStore& store, int sharers, bool shared, int index, Names names,
                       std::vector<std::vector<std::int64_t>> shapes, std::vector<bool> trained,
                       const std::vector<const MasterParameters*>& masters,
                       const std::vector<py::typing::List<Objects>>& groups,
                       const std::vector<std::vector<std::vector<int>>>& members,
                       const std::vector<py::typing::List<Objects>>& states) {
  OwnedState owned{.store = &store,
                   .sharers = sharers,
                   .shared = shared,
                   .index = index,
                   .names = std::move(names),
                   .shapes = std::move(shapes),
                   .trained = std::move(trained),
                   .optimizers = {}};
  for (std::size_t number = 0; number < masters.size(); ++number) {
    OwnedOptimizer optimizer{
        .masters = masters[number], .groups = {}, .members = members.at(number), .state_of = {}};
    for (const py::handle group : groups.at(number)) optimizer.groups.push_back(to_object(group));
    optimizer.state_of = [kept = states_by_run(*masters[number], states.at(number))](
                             const MasterRun& run) { return kept.at(&run); };
    owned.optimizers.push_back(std::move(optimizer));
  }
  return owned;
}

}  // namespace

void bind_saved_state(py::module_& module) {
  py::class_<SavedState>(
      module, "SavedState",
      "The state of a model and of its optimizer as it was saved, whatever job wrote "
      "it; checkpoint/state/saved_state.h.")
      .def(py::init<std::string>(), py::arg("where"))
      .def(
          "add_model",
          [](SavedState& saved, const py::object& entries,
             const std::map<std::string, std::string>& tied) {
            with_files([&] { saved.add_model({to_items(entries), saved.where()}, tied); });
          },
          py::arg("entries"), py::arg("tied") = std::map<std::string, std::string>(),
          "Takes the entries of a file of a model.")
      .def(
          "add_optimizer",
          [](SavedState& saved, const py::object& state, const Names& names,
             const checkpoint::Shapes& shapes) {
            with_files([&] {
              saved.add_optimizer({to_items(state), saved.where()}, names, shapes);
            });
          },
          py::arg("state"), py::arg("names") = Names(), py::arg("shapes") = checkpoint::Shapes(),
          "Reads the state of an optimizer in any form: a part, a list of parts, or a state dict.")
      .def("copy", [](const SavedState& saved) { return SavedState(saved); })
      .def("complete_with", &SavedState::complete_with, py::arg("other"),
           "Takes from the state of another tensor rank what this lacks.")
      .def_property_readonly("where", &SavedState::where)
      .def_property_readonly("entries", &entries_of, "Entries of the model.")
      .def_property_readonly("has_values_in_shards", &SavedState::has_values_in_shards)
      .def_property_readonly("tied", &SavedState::tied)
      .def_property_readonly("shapes", &shapes_of,
                             "Shapes of parameters, as far as files say them.")
      .def_property_readonly(
          "kept_shapes", &kept_shapes_of,
          "By parameter, shapes of what the optimizer keeps; None for no tensor.")
      .def_property_readonly("common",
                             [](const SavedState& saved) { return dictionary(saved.common()); })
      .def_property_readonly("groups", &groups_of, "Settings, and names of parameters.")
      .def_property_readonly("kind", &SavedState::kind)
      .def_property_readonly("loss_scale", &loss_scale_of)
      .def_property_readonly("parts", &SavedState::parts)
      .def_property_readonly("sharers", &SavedState::sharers)
      .def_property_readonly("is_one_of_several", &SavedState::is_one_of_several)
      .def_property_readonly("is_of_optimizer", &SavedState::is_of_optimizer)
      .def("whole_masters",
           [](const SavedState& saved) {
             py::typing::Dict<py::str, at::Tensor> masters;
             for (const auto& [name, value] : with_files([&] { return saved.whole_masters(); })) {
               masters[py::str(name)] = value;
             }
             return masters;
           })
      .def_property_readonly("types", &types_of,
                             "By parameter, types of its master, by that name, and of fields.")
      .def("whole_master", &whole_master, py::arg("name"), "In the parameter's shape.")
      .def(
          "whole_state",
          [](const SavedState& saved, const std::string& name) {
            return dictionary(with_files([&] { return saved.whole_state(name); }));
          },
          py::arg("name"))
      .def(
          "state_of_run",
          [](const SavedState& saved, const MasterRun& run, const Names& names) {
            return dictionary(
                with_files([&] { return checkpoint::state_of_run(saved, run, names); }));
          },
          py::arg("run"), py::arg("names"))
      .def(
          "restore_masters",
          [](const SavedState& saved, ParameterStore& store, const Names& names) {
            with_files([&] { checkpoint::restore_masters(saved, store, names); });
          },
          py::arg("store"), py::arg("names"));

  py::class_<OwnedState>(module, "OwnedState",
                         "Sharded or 16-bit state of this rank; checkpoint/state/owned_state.h.")
      .def(py::init(&owned_state), py::kw_only(), py::arg("store"), py::arg("sharers"),
           py::arg("shared"), py::arg("index"), py::arg("names"), py::arg("shapes"),
           py::arg("trained"), py::arg("masters"), py::arg("groups"), py::arg("members"),
           py::arg("states"), py::keep_alive<1, 2>(), py::keep_alive<1, 9>())
      .def("part_of_rank",
           [](const OwnedState& owned) -> Objects {
             return from_object(checkpoint::part_of_rank(owned));
           })
      .def(
          "part_for_file",
          [](const OwnedState& owned) -> Objects {
            c10::IValue part;
            {
              const py::gil_scoped_release no_gil;
              part = checkpoint::part_for_file(owned);
            }
            return from_object(part);
          },
          "Collective over the shard group.");
}

}  // namespace smp::python
