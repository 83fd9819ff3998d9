// SPDX-License-Identifier: Apache-2.0
// Python's view of smp_runtime/topology.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <variant>
#include <vector>

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "smp_runtime/python/bindings.h"
#include "smp_runtime/topology/composition.h"
#include "smp_runtime/topology/parallel_config.h"
#include "smp_runtime/topology/parameter_table.h"

namespace smp::python {
namespace {

namespace py = pybind11;
using topology::ParallelConfig;

// Attributes are the names of the table, so that a key added there needs no line here.
void bind_setting(py::class_<ParallelConfig>& settings, const topology::ConfigParameter& parameter,
                  std::string_view spelling) {
  const std::string name(spelling);
  settings.def_property(
      name.c_str(),
      [&parameter](const ParallelConfig& self) { return topology::read_field(self, parameter); },
      [&parameter, name](ParallelConfig& self, const topology::Value& value) {
        topology::write_field(self, parameter, {.name = name, .value = value}, "smp.state.cfg");
      });
}

// The types that the attributes have.
std::string python_type(const topology::Field& field) {
  return std::visit(
      [](auto member) -> std::string {
        using Member = decltype(member);
        if constexpr (std::is_same_v<Member, std::int64_t ParallelConfig::*>) return "int";
        if constexpr (std::is_same_v<Member, double ParallelConfig::*>) return "float";
        if constexpr (std::is_same_v<Member, bool ParallelConfig::*>) return "bool";
        if constexpr (std::is_same_v<Member, std::string ParallelConfig::*>) return "str";
        if constexpr (std::is_same_v<Member, std::optional<std::int64_t> ParallelConfig::*>) {
          return "int | None";
        }
        return "str | None";
      },
      field);
}

std::vector<std::tuple<std::string, std::string, std::string>> parameter_fields() {
  std::vector<std::tuple<std::string, std::string, std::string>> fields;
  for (const topology::ConfigParameter& parameter : topology::parameter_table()) {
    const std::string type = python_type(parameter.field);
    fields.emplace_back(parameter.name, type, parameter.help);
    if (!parameter.alias.empty()) fields.emplace_back(parameter.alias, type, parameter.help);
  }
  return fields;
}

}  // namespace

void bind_topology(py::module_& module) {
  auto settings = py::class_<ParallelConfig>(module, "ParallelConfig",
                                             "The checked parallel settings of a job.")
                      .def("__repr__", &ParallelConfig::as_json)
                      .def("as_json", &ParallelConfig::as_json);
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
      py::arg("job_text"), py::arg("job_where"), py::arg("dict_json"), py::arg("dict_where"));
  module.def("refusal_to_wrap", &topology::refusal_to_wrap, py::arg("config"),
             py::arg("world_size"));
  module.def("compositions_as_markdown", &topology::compositions_as_markdown,
             "Which features go together, as the documentation's table.");
  module.def("parameters_as_markdown", &topology::parameters_as_markdown,
             "All settings, as the documentation's table.");
  module.def("parameter_names", &topology::parameter_names);
  module.def("parameter_fields", &parameter_fields,
             "Name, Python's type and meaning of every setting, aliases included.");
}

}  // namespace smp::python
