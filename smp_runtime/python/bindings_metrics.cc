// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>
#include <torch/csrc/utils/pybind.h>

#include "smp_runtime/metrics/process_memory.h"
#include "smp_runtime/metrics/step_reports.h"
#include "smp_runtime/python/bindings.h"

namespace smp::python {
namespace py = pybind11;
namespace {

using metrics::EngineUse;
using metrics::MemoryLedger;
using metrics::StepReports;

using Ledger = py::typing::Callable<py::typing::Dict<py::str, py::int_>()>;

metrics::StepMeter::Ledger ledger_of(Ledger ledger) {
  return [ledger = shared_object(std::move(ledger))] {
    const py::gil_scoped_acquire gil;
    MemoryLedger kinds;
    for (const auto& [kind, bytes] : (*ledger)().cast<py::dict>()) {
      kinds.emplace_back(kind.cast<std::string>(), bytes.cast<std::int64_t>());
    }
    return kinds;
  };
}

void bind_reports(py::module_& module) {
  const auto without_gil = py::call_guard<py::gil_scoped_release>();
  py::class_<EngineUse>(module, "EngineUse", "How a step used the pipeline; metrics/step_meter.h.")
      .def_property_readonly("pipeline_use",
                             [](const EngineUse& use) -> std::optional<double> {
                               if (!use.pipeline) return std::nullopt;
                               return use.pipeline->computed;
                             })
      .def_readonly("messages_sent", &EngineUse::messages_sent)
      .def_readonly("bytes_sent", &EngineUse::bytes_sent);
  py::class_<StepReports>(
      module, "StepReports",
      "What a rank's steps tell: the live line, metrics, the rank's record; does nothing where\n"
      "nobody asks for it; metrics/step_reports.h. Collective over the job to make.\n"
      "\n"
      "Args:\n"
      "    session: its groups have been opened.\n"
      "    device: its name.\n"
      "    library: the version.\n"
      "    torch: the version.")
      .def(py::init([](session::Session& session, const std::string& device,
                       const std::string& library, const std::string& torch) {
             const py::gil_scoped_release no_gil;
             return std::make_unique<StepReports>(
                 session, metrics::JobFacts{.device = device, .library = library, .torch = torch});
           }),
           py::arg("session"), py::arg("device"), py::arg("library"), py::arg("torch"),
           py::keep_alive<1, 2>())
      .def(
          "set_memory",
          [](StepReports& self, Ledger ledger, std::function<std::int64_t()> formula) {
            self.set_memory(
                &self, {.ledger = ledger_of(std::move(ledger)), .formula = std::move(formula)});
          },
          py::arg("ledger"), py::arg("formula"),
          "``ledger``: what the model's state takes here. ``formula``: what it would by "
          "arithmetic;\n"
          "0: no formula. [bytes]")
      .def("set_total", &StepReports::set_total, py::arg("steps"),
           "How many steps there will be, for the remaining time.")
      .def("set_interval", &StepReports::set_interval, py::arg("seconds"),
           "Between two lines where they stay, and two reports to most outputs; 1 at first.")
      .def("count_flops", &StepReports::count_flops, py::arg("on_gpu"), py::arg("peak"),
           "From now on reports have floating-point operations, of devices that do ``peak`` a\n"
           "second. Returns whether anybody asks for them.")
      .def("set_forward_flops", &StepReports::set_forward_flops, py::arg("flops"),
           "Operations of the forward of one microbatch.")
      .def_property_readonly("want_loss", &StepReports::want_loss,
                             "Whether `averaged` and `end_step` have a use for the loss.")
      .def("begin_step", &StepReports::begin_step)
      .def(
          "averaged",
          [](StepReports& self, const std::optional<at::Tensor>& loss, const at::Device& device) {
            self.averaged(loss.value_or(at::Tensor()), device);
          },
          py::arg("loss"), py::arg("device"), without_gil,
          "After gradients were averaged. Collective over rank 0's data-parallel group; does not\n"
          "wait.\n"
          "\n"
          "``loss`` is that of this rank's step; None where it has none, or made no step.")
      .def(
          "end_step",
          [](StepReports& self, const EngineUse& use, std::int64_t samples,
             const std::optional<at::Tensor>& loss,
             bool trained) { self.end_step(use, samples, loss.value_or(at::Tensor()), trained); },
          py::arg("use"), py::arg("samples"), py::arg("loss"), py::arg("trained"), without_gil,
          "``samples``: of this rank's batch.")
      .def("begin_optimizer", &StepReports::begin_optimizer)
      .def("end_optimizer", &StepReports::end_optimizer)
      .def("event", &StepReports::event, py::arg("kind"), py::arg("text"), without_gil,
           "Something that the report marks on its time axis, such as a checkpoint.")
      .def("close", &StepReports::close, without_gil,
           "Tells what is left. Nothing is told or recorded afterwards.");
  module.def("tell_partition", &metrics::tell_partition, py::arg("session"), py::arg("decided"),
             py::arg("tree"), without_gil,
             "What goes where in the model, for the log and the report's card: the first rank's\n"
             "call.");
}

}  // namespace

void bind_metrics(py::module_& module) {
  bind_reports(module);
  module.def("heap_bytes", &metrics::heap_bytes, "Of glibc's heap, allocated and not freed.");
}

}  // namespace smp::python
