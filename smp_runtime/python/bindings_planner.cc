// SPDX-License-Identifier: Apache-2.0
// Python's view of smp_runtime/planner.
#include <string>
#include <string_view>

#include <pybind11/pybind11.h>

#include "smp_runtime/planner/plan_document.h"
#include "smp_runtime/python/bindings.h"

namespace smp::python {

namespace py = pybind11;

void bind_planner(py::module_& module) {
  module.def("answer_plan", &planner::answer, py::arg("question"),
             py::call_guard<py::gil_scoped_release>(),
             "The best settings for a model on its machines, or what one takes: JSON of JSON\n"
             "(planner/plan_document.h). Raises SMPConfigError.");
  module.def("instance_machines", &planner::machines_document, py::arg("type"), py::arg("hosts"),
             "Machines of an instance type of the table, as JSON. Raises SMPConfigError, which\n"
             "names near types, for one that is not in it.");
}

}  // namespace smp::python
