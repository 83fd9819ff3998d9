// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <pybind11/functional.h>
#include <pybind11/stl.h>
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

/// `ledger` returns a dictionary.
metrics::StepMeter::Ledger ledger_of(py::object ledger) {
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
  py::class_<EngineUse>(module, "EngineUse", "How a step used the pipeline.")
      .def_readonly("pipeline_use", &EngineUse::pipeline_use)
      .def_readonly("messages_sent", &EngineUse::messages_sent)
      .def_readonly("bytes_sent", &EngineUse::bytes_sent);
  py::class_<StepReports>(module, "StepReports", "What a rank's steps tell.")
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
          [](StepReports& self, py::object ledger, std::function<std::int64_t()> formula) {
            self.set_memory(
                &self, {.ledger = ledger_of(std::move(ledger)), .formula = std::move(formula)});
          },
          py::arg("ledger"), py::arg("formula"))
      .def("set_total", &StepReports::set_total, py::arg("steps"))
      .def("set_interval", &StepReports::set_interval, py::arg("seconds"))
      .def("count_flops", &StepReports::count_flops, py::arg("on_gpu"), py::arg("peak"))
      .def("set_forward_flops", &StepReports::set_forward_flops, py::arg("flops"))
      .def_property_readonly("want_loss", &StepReports::want_loss)
      .def("begin_step", &StepReports::begin_step)
      .def(
          "averaged",
          [](StepReports& self, const std::optional<at::Tensor>& loss, const at::Device& device) {
            self.averaged(loss.value_or(at::Tensor()), device);
          },
          py::arg("loss"), py::arg("device"), without_gil)
      .def(
          "end_step",
          [](StepReports& self, const EngineUse& use, std::int64_t samples,
             const std::optional<at::Tensor>& loss,
             bool trained) { self.end_step(use, samples, loss.value_or(at::Tensor()), trained); },
          py::arg("use"), py::arg("samples"), py::arg("loss"), py::arg("trained"), without_gil)
      .def("begin_optimizer", &StepReports::begin_optimizer)
      .def("end_optimizer", &StepReports::end_optimizer)
      .def("event", &StepReports::event, py::arg("kind"), py::arg("text"), without_gil)
      .def("close", &StepReports::close, without_gil);
  module.def("tell_partition", &metrics::tell_partition, py::arg("session"), py::arg("assignment"),
             py::arg("tree"), py::arg("summary"), without_gil);
}

}  // namespace

void bind_metrics(py::module_& module) {
  bind_reports(module);
  module.def("heap_bytes", &metrics::heap_bytes,
             "Bytes that this process has allocated and not freed.");
}

}  // namespace smp::python
