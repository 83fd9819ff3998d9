// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>
#include <utility>

#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "smp_runtime/metrics/process_memory.h"
#include "smp_runtime/metrics/replica_loss.h"
#include "smp_runtime/metrics/step_meter.h"
#include "smp_runtime/metrics/step_records.h"
#include "smp_runtime/python/bindings.h"

namespace smp::python {
namespace py = pybind11;
namespace {

using metrics::MemoryLedger;
using metrics::ReplicaLoss;
using metrics::StepMeter;
using metrics::StepRecords;

/// `ledger` returns a dictionary.
StepMeter::Ledger ledger_of(py::object ledger) {
  return [ledger = shared_object(std::move(ledger))] {
    const py::gil_scoped_acquire gil;
    MemoryLedger kinds;
    for (const auto& [kind, bytes] : (*ledger)().cast<py::dict>()) {
      kinds.emplace_back(kind.cast<std::string>(), bytes.cast<std::int64_t>());
    }
    return kinds;
  };
}

/// Of what Engine.last_step() returns.
metrics::EngineUse engine_use(const py::dict& step) {
  metrics::EngineUse use{.pipeline_use = {},
                         .messages_sent = step["messages_sent"].cast<std::int64_t>(),
                         .bytes_sent = step["bytes_sent"].cast<std::int64_t>()};
  if (step.contains("group_use")) use.pipeline_use = step["group_use"].cast<double>();
  return use;
}

void bind_meter(py::module_& module) {
  const auto without_gil = py::call_guard<py::gil_scoped_release>();
  py::class_<StepMeter, std::shared_ptr<StepMeter>>(module, "StepMeter",
                                                    "How steps go, told by the first rank.")
      .def("set_total", &StepMeter::set_total, py::arg("steps"))
      .def("set_interval", &StepMeter::set_interval, py::arg("seconds"))
      .def(
          "count_flops",
          [](StepMeter& self, std::int64_t microbatches, int ranks, std::optional<double> peak) {
            self.count_flops({.microbatches = microbatches, .ranks = ranks, .peak = peak});
          },
          py::arg("microbatches"), py::arg("ranks"), py::arg("peak"))
      .def("set_forward_flops", &StepMeter::set_forward_flops, py::arg("flops"))
      .def("begin_step", &StepMeter::begin_step)
      .def(
          "end_step",
          [](StepMeter& self, const py::dict& use, std::int64_t samples,
             const std::optional<at::Tensor>& loss, bool training) {
            const metrics::EngineUse account = engine_use(use);
            const py::gil_scoped_release no_gil;
            self.end_step(account, samples, loss.value_or(at::Tensor()), training);
          },
          py::arg("use"), py::arg("samples"), py::arg("loss"), py::arg("training"))
      .def("optimizer_stepped", &StepMeter::optimizer_stepped)
      .def("close", &StepMeter::close, without_gil);
  module.def(
      "make_step_meter",
      [](session::Session& session, py::object ledger, std::shared_ptr<ReplicaLoss> replica_loss) {
        return metrics::make_step_meter(session, ledger_of(std::move(ledger)),
                                        std::move(replica_loss));
      },
      py::arg("session"), py::arg("ledger"), py::arg("replica_loss"));
}

void bind_replica_loss(py::module_& module) {
  const auto without_gil = py::call_guard<py::gil_scoped_release>();
  py::class_<ReplicaLoss, std::shared_ptr<ReplicaLoss>>(module, "ReplicaLoss",
                                                        "The mean of a step's loss.")
      .def(
          "exchange",
          [](ReplicaLoss& self, const std::optional<at::Tensor>& own, const at::Device& device) {
            const py::gil_scoped_release no_gil;
            self.exchange(own.value_or(at::Tensor()), device);
          },
          py::arg("own"), py::arg("device"));
  module.def("make_replica_loss", &metrics::make_replica_loss, py::arg("session"), without_gil);
}

void bind_records(py::module_& module) {
  const auto without_gil = py::call_guard<py::gil_scoped_release>();
  py::class_<StepRecords>(module, "StepRecords", "A rank's record besides the times of its steps.")
      .def(py::init([](std::shared_ptr<measure::Recorder> recorder, py::object ledger,
                       std::function<std::int64_t()> formula) {
             return std::make_unique<StepRecords>(std::move(recorder), ledger_of(std::move(ledger)),
                                                  std::move(formula));
           }),
           py::arg("recorder"), py::arg("ledger"), py::arg("formula"))
      .def("end_step", &StepRecords::end_step, py::arg("samples"), py::arg("trained"), without_gil)
      .def("note", &StepRecords::note, py::arg("key"), py::arg("json"), without_gil)
      .def("event", &StepRecords::event, py::arg("kind"), py::arg("text"), without_gil);
  module.def(
      "note_job",
      [](session::Session& session, const std::string& device, const std::string& library,
         const std::string& torch) {
        metrics::note_job(session, {.device = device, .library = library, .torch = torch});
      },
      py::arg("session"), py::arg("device"), py::arg("library"), py::arg("torch"));
}

}  // namespace

void bind_metrics(py::module_& module) {
  bind_replica_loss(module);
  bind_meter(module);
  bind_records(module);
  module.def("heap_bytes", &metrics::heap_bytes,
             "Bytes that this process has allocated and not freed.");
}

}  // namespace smp::python
