// SPDX-License-Identifier: Apache-2.0
// Python's view of smp_runtime/topology.
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include "smp_runtime/python/bindings.h"
#include "smp_runtime/topology/composition.h"
#include "smp_runtime/topology/parallel_config.h"
#include "smp_runtime/topology/parameter_table.h"
#include "smp_runtime/topology/ranker.h"
#include "smp_runtime/topology/v2_config.h"

namespace smp::python {
namespace {

namespace py = pybind11;
using topology::ParallelConfig;
using topology::V2Config;

// Attributes are the names of the table, so that a key added there needs no line here. An
// assignment takes what the table's converter takes, and is told its errors.
void bind_setting(py::class_<ParallelConfig>& settings, const topology::ConfigParameter& parameter,
                  std::string_view spelling) {
  const std::string name(spelling);
  std::visit(
      [&]<typename Member>(Member ParallelConfig::*member) {
        settings.def_property(
            name.c_str(), [member](const ParallelConfig& self) { return self.*member; },
            [&parameter, name](ParallelConfig& self, const py::typing::Union<Member>& assigned) {
              py::detail::make_caster<topology::Value> value;
              if (!value.load(assigned, true)) throw py::reference_cast_error();
              parameter.write(self,
                              {.name = name, .value = py::detail::cast_op<topology::Value&>(value)},
                              "smp.state.cfg");
            },
            std::string(parameter.help).c_str());
      },
      parameter.field);
}

void bind_v2_settings(py::module_& module) {
  auto settings =
      py::class_<V2Config>(module, "V2Config", "The effective value of every setting of SMP v2.")
          .def("__repr__", &V2Config::as_json)
          .def("as_json", &V2Config::as_json, "The settings as one JSON object.")
          .def("shard_degree", &V2Config::shard_degree, py::arg("world_size"),
               "Ranks over which FSDP shards one copy of the model, or what tensor parallelism\n"
               "leaves of it; None where the script's own strategy says it.")
          .def_readonly("warnings", &V2Config::warnings, "Lines to be logged once per job.");
  for (const topology::V2Parameter& parameter : topology::V2Parameter::table()) {
    std::visit(
        [&](auto member) {
          settings.def_readonly(std::string(parameter.name).c_str(), member,
                                std::string(parameter.help).c_str());
        },
        parameter.field);
  }

  module.def(
      "make_v2_config",
      [](const std::vector<std::pair<std::string, std::string>>& origins) {
        std::vector<topology::Settings> read;
        for (const auto& [text, where] : origins) {
          read.push_back(topology::parse_settings(text, where));
        }
        return topology::make_v2_config(read);
      },
      py::arg("origins"),
      "Of texts of settings, each with the place that it is from, and each before those behind "
      "it.\n"
      "Raises SMPConfigError, which begins with the place.");
  module.def(
      "validate_v2_world", static_cast<void (*)(const V2Config&, int)>(&topology::validate_world),
      py::arg("config"), py::arg("world_size"),
      "Raises SMPConfigError for degrees that exclude each other, are not offered, or do not\n"
      "divide the number of ranks.");
  module.def("v2_parameters_as_markdown", &topology::V2Parameter::table_as_markdown,
             "All settings of SMP v2, as the documentation's table.");
}

void bind_ranker(py::module_& module) {
  using topology::Ranker;
  py::class_<Ranker>(module, "Ranker",
                     "Ranks in blocks, each of which holds one copy of the model.\n\n"
                     "Ranks of a tensor-parallel group are neighbours. Those of a block with the\n"
                     "same tensor rank shard what it holds; blocks follow each other, and are\n"
                     "replicas.")
      .def(py::init<int, int, int>(), py::arg("world_size"), py::arg("shard_degree") = 1,
           py::arg("tensor_degree") = 1,
           "Raises SMPConfigError unless the product of the degrees divides the ranks.")
      .def_property_readonly("world_size", &Ranker::world_size)
      .def_property_readonly("shard_degree", &Ranker::shard_degree)
      .def_property_readonly("tensor_degree", &Ranker::tensor_degree)
      .def_property_readonly("block_size", &Ranker::block_size)
      .def(
          "get_rep_rank",
          [](const Ranker& self, int rank) { return self.coordinates(rank).replica; },
          py::arg("rank"),
          "Number of the replica that ``rank`` is in; the ranks with 0 write checkpoints.")
      .def("get_rep_groups", &Ranker::replica_groups,
           "Ranks that hold the same shard, for each shard; the same list on all ranks.")
      .def("blocks", &Ranker::blocks, "Ranks of each replica.")
      .def("shard_groups", &Ranker::shard_groups, "Ranks over which FSDP shards.")
      .def("tensor_groups", &Ranker::tensor_groups, "Ranks that compute a layer together.");
  module.def("native_hybrid_degree", &topology::native_hybrid_degree, py::arg("world_size"),
             "Degree of ``HYBRID_SHARD`` where no key says one: 8, as documented for hosts with 8\n"
             "GPUs; with ranks that 8 does not divide the largest degree below it that does.");
  module.def(
      "placement_warning",
      [](const Ranker& ranker, const std::vector<std::string>& hosts) {
        return topology::placement_warning(ranker, hosts);
      },
      py::arg("ranker"), py::arg("hosts"),
      "A warning where a tensor-parallel group or a copy of the model spans hosts though each has\n"
      "room for it; ``hosts`` by rank.");
}

}  // namespace

void bind_topology(py::module_& module) {
  auto settings = py::class_<ParallelConfig>(module, "ParallelConfig",
                                             "The effective value of every setting, under every\n"
                                             "documented spelling.")
                      .def("__repr__", &ParallelConfig::as_json)
                      .def("as_json", &ParallelConfig::as_json, "The settings as one JSON object.");
  for (const topology::ConfigParameter& parameter : topology::ConfigParameter::table()) {
    bind_setting(settings, parameter, parameter.name);
    if (!parameter.alias.empty()) bind_setting(settings, parameter, parameter.alias);
  }

  module.def(
      "make_parallel_config",
      [](const std::string& job_text, const std::string& job_where, const std::string& dict_json,
         const std::string& dict_where) {
        return topology::make_parallel_config(topology::parse_settings(job_text, job_where),
                                              topology::parse_settings(dict_json, dict_where));
      },
      py::arg("job_text"), py::arg("job_where"), py::arg("dict_json"), py::arg("dict_where"),
      "Of what the job says, as text, and what the script gave to ``smp.init``, which the job's\n"
      "wins over. Raises SMPConfigError; for a wrong key or value it begins with the place.");
  module.def("refusal_to_wrap", &topology::refusal_to_wrap, py::arg("config"),
             py::arg("world_size"),
             "Why a model cannot be wrapped with these settings on so many ranks, or None.");
  module.def("compositions_as_markdown", &topology::compositions_as_markdown,
             "Which features go together, as the documentation's table.");
  module.def("settings_differences", &topology::differences, py::arg("here"), py::arg("there"),
             "A line for each setting that is not the same in two results of ``as_json``.");
  module.def("parameters_as_markdown", &topology::ConfigParameter::table_as_markdown,
             "All settings, as the documentation's table.");
  module.def("parameter_names", &topology::parameter_names<ParallelConfig>,
             "Of all settings, aliases included.");
  bind_v2_settings(module);
  bind_ranker(module);
}

}  // namespace smp::python
