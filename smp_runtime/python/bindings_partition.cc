// SPDX-License-Identifier: Apache-2.0
// Python's view of smp_runtime/partition.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "smp_runtime/partition/assignment.h"
#include "smp_runtime/partition/job_partition.h"
#include "smp_runtime/partition/module_tree.h"
#include "smp_runtime/partition/partition_file.h"
#include "smp_runtime/partition/split_points.h"
#include "smp_runtime/python/bindings.h"

namespace smp::python {

namespace py = pybind11;
using partition::Assignment;
using partition::JobPartition;
using partition::ModuleTree;

void bind_partition(py::module_& module) {
  py::class_<ModuleTree>(
      module, "ModuleTree",
      "The modules of a model with their costs, for the partitioner; partition/module_tree.h.")
      .def(py::init<>())
      .def("add_parameter", &ModuleTree::add_parameter, py::arg("name"), py::arg("bytes"))
      .def(
          "add_module",
          [](ModuleTree& tree, std::string name, int parent, std::vector<int> parameters,
             int64_t activation_bytes, int64_t time_ns, int64_t input_bytes, int64_t output_bytes,
             int calls, bool called, std::optional<int> pin, bool passes_on, int64_t recompute_ns,
             int64_t recomputed_bytes) {
            return tree.add_module({.name = std::move(name),
                                    .parameters = std::move(parameters),
                                    .activation_bytes = activation_bytes,
                                    .time_ns = time_ns,
                                    .recompute_ns = recompute_ns,
                                    .recomputed_bytes = recomputed_bytes,
                                    .input_bytes = input_bytes,
                                    .output_bytes = output_bytes,
                                    .calls = calls,
                                    .called = called,
                                    .pin = pin,
                                    .passes_on = passes_on},
                                   parent);
          },
          py::arg("name"), py::kw_only(), py::arg("parent") = -1,
          py::arg("parameters") = std::vector<int>{}, py::arg("activation_bytes") = 0,
          py::arg("time_ns") = 0, py::arg("input_bytes") = 0, py::arg("output_bytes") = 0,
          py::arg("calls") = 1, py::arg("called") = true, py::arg("pin") = std::nullopt,
          py::arg("passes_on") = false, py::arg("recompute_ns") = 0,
          py::arg("recomputed_bytes") = 0)
      .def(
          "add_tensor",
          [](ModuleTree& tree, int64_t bytes, int producer, std::vector<int> consumers) {
            tree.add_tensor(
                {.bytes = bytes, .producer = producer, .consumers = std::move(consumers)});
          },
          py::arg("bytes"), py::arg("producer"), py::arg("consumers"))
      .def("__len__", &ModuleTree::size);

  py::class_<Assignment>(module, "Assignment",
                         "Which module is on which partition; partition/assignment.h.")
      .def_readonly("partitions", &Assignment::partitions)
      .def_readonly("partition_of", &Assignment::partition_of)
      .def("__getitem__", &Assignment::at, py::arg("module"))
      .def("to_json", &Assignment::to_json)
      .def_static("from_json", &Assignment::from_json, py::arg("text"), py::arg("where"))
      .def("check_fits", &partition::check_fits, py::arg("tree"), py::arg("partitions"))
      .def("log_line", &partition::assignment_line, py::arg("tree"))
      .def("balance_line", &partition::balance_line, py::arg("tree"));

  py::class_<JobPartition>(module, "JobPartition",
                           "A decision and who made it; what partition_job chose, and why.")
      .def(py::init([](Assignment assignment, std::string summary) {
             return JobPartition{.assignment = std::move(assignment),
                                 .summary = std::move(summary)};
           }),
           py::arg("assignment"), py::arg("summary"))
      .def_readonly("assignment", &JobPartition::assignment)
      .def_readonly("summary", &JobPartition::summary,
                    "A line for the log: who decided, and what is expected of it.")
      .def_readonly("warning", &JobPartition::warning, "What to warn users of; empty if nothing.");

  module.def("read_partition_file", &partition::read_partition_file, py::arg("text"),
             py::arg("where"), py::arg("tree"), py::arg("partitions"),
             "Raises SMPConfigError, which begins with ``where``, for one that does not fit the\n"
             "tree.");
  module.def("read_partition_summary", &partition::read_partition_summary, py::arg("text"),
             py::arg("where"), py::arg("partitions"),
             "The ``summary`` that the file was written with; empty if there is none.");
  module.def("partition_file_text", &partition::partition_file_text, py::arg("assignment"),
             py::arg("tree"), py::arg("summary"), "What read_partition_file reads.");
  module.def(
      "partition_job",
      [](const ModuleTree& tree, const topology::ParallelConfig& config,
         const std::string& partitioner, int64_t elements, int64_t parameter_bytes, int replicas,
         bool on_gpus, int64_t device_bytes, int64_t recompute_bytes) {
        return partition::partition_job(tree, config,
                                        {.elements = elements,
                                         .parameter_bytes = parameter_bytes,
                                         .replicas = replicas,
                                         .on_gpus = on_gpus,
                                         .device_bytes = device_bytes,
                                         .recompute_bytes = recompute_bytes},
                                        partitioner);
      },
      py::arg("tree"), py::arg("config"), py::kw_only(), py::arg("partitioner"),
      py::arg("elements"), py::arg("parameter_bytes"), py::arg("replicas"), py::arg("on_gpus"),
      py::arg("device_bytes"), py::arg("recompute_bytes"),
      "By the partitioner that ``SMP_PARTITIONER`` names, auto or compat. ``elements`` and\n"
      "``parameter_bytes`` are those of the model's parameters, which ``replicas`` ranks hold\n"
      "alike; ``device_bytes`` is the memory of one device, 0 if that is not known, of which one\n"
      "recompute at a time needs ``recompute_bytes``.");
  module.def("split_points", &partition::split_points, py::arg("tree"), py::arg("stages"),
             "Names of the modules with which the stages but the first begin.");
  module.def(
      "assign_manual", &partition::assign_manual, py::arg("tree"), py::arg("partitions"),
      py::arg("default_partition"),
      "By the modules' pins; the others are with their parents, or on the default partition.");
}

}  // namespace smp::python
