// SPDX-License-Identifier: Apache-2.0
// Python's view of the pipeline engine and of the collectives below it.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <pybind11/functional.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "smp_runtime/collectives/gradient_reducer.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/pipeline/engine.h"
#include "smp_runtime/python/bindings.h"
#include "smp_runtime/transport/c10d_transport.h"
#include "smp_runtime/transport/loopback.h"

namespace smp::python {
namespace {

using pipeline::TensorTree;
using PyTree = std::pair<py::bytes, std::vector<at::Tensor>>;

/// A Python object that C++ threads may drop without holding Python's lock.
std::shared_ptr<py::object> shared_object(py::object object) {
  return {new py::object(std::move(object)), [](py::object* held) {
            const py::gil_scoped_acquire gil;
            delete held;
          }};
}

TensorTree from_python(const py::object& result) {
  auto [stub, tensors] = result.cast<std::pair<std::string, std::vector<at::Tensor>>>();
  return {.stub = std::move(stub), .tensors = std::move(tensors)};
}

PyTree to_python(TensorTree tree) { return {py::bytes(tree.stub), std::move(tree.tensors)}; }

std::string format_traceback(const py::error_already_set& error) {
  const py::object trace = error.trace() ? py::object(error.trace()) : py::none();
  const py::object lines =
      py::module_::import("traceback").attr("format_exception")(error.type(), error.value(), trace);
  return py::str("").attr("join")(lines).cast<std::string>();
}

/// The error as a Python traceback where it has one.
std::string describe_error(const std::exception_ptr& error) {
  const py::gil_scoped_acquire gil;
  try {
    std::rethrow_exception(error);
  } catch (const py::error_already_set& exception) {
    return format_traceback(exception);
  } catch (python_error& exception) {
    exception.restore();
    const py::error_already_set fetched;
    const std::string text = format_traceback(fetched);
    exception.persist();
    return text;
  } catch (const c10::Error& exception) {
    return exception.what_without_backtrace();
  } catch (const std::exception& exception) {
    return exception.what();
  }
}

/// Runs the handlers of signals that came in the meantime; does nothing off the main thread.
void check_signals() {
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

/// The current device is a thread's own. Works without CUDA's headers, and does nothing for -1.
void use_cuda_device(int device) {
  if (device < 0) return;
  c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA)
      .setDevice(c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device)));
}

class PyEngine {
 public:
  PyEngine(const std::string& group_name, int cuda_device, const std::string& schedule,
           int64_t active_microbatches, bool deterministic, double timeout_seconds,
           std::string name, py::object run_module, std::vector<std::string> module_names,
           py::object after_backward_outside) {
    const auto runner = shared_object(std::move(run_module));
    const auto after_backward = shared_object(std::move(after_backward_outside));
    pipeline::EngineOptions options{
        .server = {.schedule = schedule == "simple" ? pipeline::Schedule::kSimple
                                                    : pipeline::Schedule::kInterleaved,
                   .active_microbatches = active_microbatches,
                   .deterministic = deterministic,
                   .timeout =
                       std::chrono::milliseconds(static_cast<int64_t>(timeout_seconds * 1e3)),
                   .name = std::move(name),
                   .thread_setup = [cuda_device] { use_cuda_device(cuda_device); },
                   .check_interrupt = check_signals,
                   .target_name =
                       [names = std::move(module_names)](int64_t module) {
                         return names.at(static_cast<size_t>(module));
                       }},
        .run_module =
            [runner](int64_t module, TensorTree arguments) {
              const py::gil_scoped_acquire gil;
              return from_python(
                  (*runner)(module, py::bytes(arguments.stub), std::move(arguments.tensors)));
            },
        .describe = describe_error,
        .after_backward_outside =
            [after_backward] {
              const py::gil_scoped_acquire gil;
              (*after_backward)();
            }};
    const py::gil_scoped_release no_gil;
    std::unique_ptr<transport::Transport> transport;
    if (group_name.empty()) {
      alone_ = std::make_unique<transport::LoopbackNetwork>(1);
      transport = alone_->endpoint(0);
    } else {
      transport = std::make_unique<transport::C10dTransport>(group_name, cuda_device);
    }
    engine_ = std::make_unique<pipeline::Engine>(std::move(transport), std::move(options));
  }

  ~PyEngine() { close(); }
  PyEngine(const PyEngine&) = delete;
  PyEngine& operator=(const PyEngine&) = delete;

  void close() {
    const py::gil_scoped_release no_gil;
    engine_.reset();
  }

  void drive(const std::string& kind, int64_t microbatches, const py::object& body,
             const py::object& collect) {
    const py::gil_scoped_release no_gil;
    engine().drive(
        kind, microbatches,
        [&](int64_t microbatch) {
          const py::gil_scoped_acquire gil;
          body(microbatch);
        },
        [&] {
          const py::gil_scoped_acquire gil;
          return from_python(collect());
        });
  }

  PyTree serve() {
    TensorTree tree;
    {
      const py::gil_scoped_release no_gil;
      tree = engine().serve();
    }
    return to_python(std::move(tree));
  }

  PyTree call(int owner, int64_t module, std::string stub, std::vector<at::Tensor> tensors) {
    TensorTree result;
    {
      const py::gil_scoped_release no_gil;
      result = engine().call(owner, module, {std::move(stub), std::move(tensors)});
    }
    return to_python(std::move(result));
  }

  void backward(const std::vector<at::Tensor>& tensors,
                const std::vector<std::optional<at::Tensor>>& gradients, double scale) {
    std::vector<at::Tensor> seeds;
    for (const auto& gradient : gradients) seeds.push_back(gradient.value_or(at::Tensor()));
    const py::gil_scoped_release no_gil;
    engine().backward(tensors, seeds, scale);
  }

  void track_parameters(const std::vector<at::Tensor>& parameters) {
    engine().track_parameters(parameters);
  }
  int64_t take_backwards() { return engine().take_backwards(); }
  [[nodiscard]] int64_t microbatch() { return engine().microbatch(); }

 private:
  pipeline::Engine& engine() {
    SMP_CHECK(engine_ != nullptr, "the pipeline engine was used after smp.shutdown()");
    return *engine_;
  }

  std::unique_ptr<transport::LoopbackNetwork> alone_;
  std::unique_ptr<pipeline::Engine> engine_;
};

}  // namespace

void bind_pipeline(py::module_& module) {
  py::register_local_exception_translator([](std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (python_error& exception) {
      exception.restore();
    }
  });

  py::class_<PyEngine>(module, "Engine",
                       "The pipeline engine of this rank; an empty group name means one rank.")
      .def(py::init<const std::string&, int, const std::string&, int64_t, bool, double, std::string,
                    py::object, std::vector<std::string>, py::object>(),
           py::kw_only(), py::arg("group_name"), py::arg("cuda_device"), py::arg("schedule"),
           py::arg("active_microbatches"), py::arg("deterministic"), py::arg("timeout_seconds"),
           py::arg("name"), py::arg("run_module"), py::arg("module_names"),
           py::arg("after_backward_outside"))
      .def("close", &PyEngine::close)
      .def("drive", &PyEngine::drive, py::arg("kind"), py::arg("microbatches"), py::arg("body"),
           py::arg("collect"))
      .def("serve", &PyEngine::serve)
      .def("call", &PyEngine::call, py::arg("owner"), py::arg("module"), py::arg("stub"),
           py::arg("tensors"))
      .def("backward", &PyEngine::backward, py::arg("tensors"), py::arg("gradients"),
           py::arg("scale"))
      .def("track_parameters", &PyEngine::track_parameters, py::arg("parameters"))
      .def("take_backwards", &PyEngine::take_backwards)
      .def_property_readonly("microbatch", &PyEngine::microbatch);

  py::class_<collectives::GradientReducer>(module, "GradientReducer",
                                           "Averages gradients over a c10d group.")
      .def(py::init<std::string, std::vector<at::Tensor>, int64_t>(), py::arg("group_name"),
           py::arg("parameters"), py::arg("bucket_bytes"))
      .def("average", &collectives::GradientReducer::average,
           py::call_guard<py::gil_scoped_release>());

  module.def("broadcast_tensors", &collectives::broadcast_tensors, py::arg("group_name"),
             py::arg("tensors"), py::arg("root"), py::call_guard<py::gil_scoped_release>(),
             "Overwrites tensors with those of the group's rank `root`.");
}

}  // namespace smp::python
