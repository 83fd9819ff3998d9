// SPDX-License-Identifier: Apache-2.0
// Python's view of smp_runtime/topology.
#include <string>
#include <string_view>
#include <variant>

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include "smp_runtime/python/bindings.h"
#include "smp_runtime/topology/composition.h"
#include "smp_runtime/topology/parallel_config.h"
#include "smp_runtime/topology/parameter_table.h"

namespace smp::python {
namespace {

namespace py = pybind11;
using topology::ParallelConfig;

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
              topology::write_field(
                  self, parameter,
                  {.name = name, .value = py::detail::cast_op<topology::Value&>(value)},
                  "smp.state.cfg");
            },
            std::string(parameter.help).c_str());
      },
      parameter.field);
}

}  // namespace

void bind_topology(py::module_& module) {
  auto settings = py::class_<ParallelConfig>(module, "ParallelConfig",
                                             "The effective value of every setting, under every\n"
                                             "documented spelling.")
                      .def("__repr__", &ParallelConfig::as_json)
                      .def("as_json", &ParallelConfig::as_json, "The settings as one JSON object.");
  for (const topology::ConfigParameter& parameter : topology::parameter_table()) {
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
  module.def("parameters_as_markdown", &topology::parameters_as_markdown,
             "All settings, as the documentation's table.");
  module.def("parameter_names", &topology::parameter_names, "Of all settings, aliases included.");
}

}  // namespace smp::python
