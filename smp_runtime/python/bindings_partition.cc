// SPDX-License-Identifier: Apache-2.0
// Python's view of smp_runtime/partition.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "smp_runtime/partition/assignment.h"
#include "smp_runtime/partition/compat_partitioner.h"
#include "smp_runtime/partition/manual_partitioner.h"
#include "smp_runtime/partition/module_tree.h"
#include "smp_runtime/python/bindings.h"

namespace smp::python {

namespace py = pybind11;
using partition::Assignment;
using partition::ModuleTree;

void bind_partition(py::module_& module) {
  py::class_<ModuleTree>(module, "ModuleTree", "The modules of a model in execution order.")
      .def(py::init<>())
      .def("add_parameter", &ModuleTree::add_parameter, py::arg("name"), py::arg("bytes"))
      .def(
          "add_module",
          [](ModuleTree& tree, std::string name, int parent, std::vector<int> parameters,
             int64_t activation_bytes, int64_t time_ns, bool called, std::optional<int> pin) {
            return tree.add_module({.name = std::move(name),
                                    .parameters = std::move(parameters),
                                    .activation_bytes = activation_bytes,
                                    .time_ns = time_ns,
                                    .called = called,
                                    .pin = pin},
                                   parent);
          },
          py::arg("name"), py::kw_only(), py::arg("parent") = -1,
          py::arg("parameters") = std::vector<int>{}, py::arg("activation_bytes") = 0,
          py::arg("time_ns") = 0, py::arg("called") = true, py::arg("pin") = std::nullopt)
      .def("__len__", &ModuleTree::size);

  py::class_<Assignment>(module, "Assignment", "Which partition runs each module.")
      .def_readonly("partitions", &Assignment::partitions)
      .def_readonly("partition_of", &Assignment::partition_of)
      .def("__getitem__", &Assignment::at, py::arg("module"))
      .def("__eq__", [](const Assignment& a, const Assignment& b) { return a == b; })
      .def("hash", &Assignment::hash)
      .def("to_json", &Assignment::to_json)
      .def_static("from_json", &Assignment::from_json, py::arg("text"), py::arg("where"))
      .def("check_fits", &partition::check_fits, py::arg("tree"), py::arg("partitions"))
      .def("log_line", &partition::assignment_line, py::arg("tree"))
      .def("describe", &partition::assignment_tree, py::arg("tree"))
      .def("parameter_bytes", &partition::parameter_bytes_of, py::arg("tree"));

  module.def("assign_compat", &partition::assign_compat, py::arg("tree"), py::arg("partitions"),
             py::arg("memory_weight"));
  module.def("assign_manual", &partition::assign_manual, py::arg("tree"), py::arg("partitions"),
             py::arg("default_partition"));
}

}  // namespace smp::python
