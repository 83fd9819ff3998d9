// SPDX-License-Identifier: Apache-2.0
// Python's view of the pipeline engine and of stored activations.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <pybind11/functional.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_cpp_function.h>
#include <torch/csrc/autograd/python_function.h>
#include <torch/csrc/utils/pybind.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/metrics/step_meter.h"
#include "smp_runtime/pipeline/engine/activation_store.h"
#include "smp_runtime/pipeline/session/session_engine.h"
#include "smp_runtime/python/bindings.h"

namespace smp::python {
namespace {

using pipeline::TensorTree;
using PyTree = std::pair<Bytes, std::vector<at::Tensor>>;
using RunModule = py::typing::Callable<PyTree(int64_t, Bytes, std::vector<at::Tensor>, bool)>;
using MakeRemoteTensor =
    py::typing::Callable<at::Tensor(std::vector<int64_t>, at::ScalarType, at::Device)>;
using RunMicrobatch = py::typing::Callable<void(int64_t)>;
using Collect = py::typing::Callable<PyTree()>;

TensorTree from_python(const py::object& result) {
  auto [definition, tensors] = result.cast<PyTree>();
  return {.definition = std::move(definition.value), .tensors = std::move(tensors)};
}

PyTree to_python(TensorTree tree) {
  return {{std::move(tree.definition)}, std::move(tree.tensors)};
}

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

/// Python's record of a C++ thread. While it lives, its thread keeps one Python thread state;
/// without it each gil_scoped_acquire of a thread that is not Python's makes a new one and gives it
/// up, memory pages included. Made and destroyed without Python's lock, which both wait for; best
/// as a thread_local.
class ThreadState {
 public:
  ThreadState() : ensured_(PyGILState_Ensure()), state_(PyEval_SaveThread()) {}

  ~ThreadState() {
    if (Py_IsFinalizing() != 0) return;  // Python would stop the thread; it frees the state itself
    PyEval_RestoreThread(state_);
    // While it still counts as in use: what is freed here, as autograd nodes in the traceback of an
    // error, may take Python's lock itself, and the last to give that up frees the state.
    PyThreadState_Clear(state_);
    PyGILState_Release(ensured_);
  }

  ThreadState(const ThreadState&) = delete;
  ThreadState& operator=(const ThreadState&) = delete;

 private:
  const PyGILState_STATE ensured_;
  PyThreadState* const state_;
};

pipeline::RemoteTensorMaker remote_tensor_maker(MakeRemoteTensor make) {
  return [maker = shared_object(std::move(make))](const transport::TensorMeta& meta) -> at::Tensor {
    at::Device device(meta.device);
    if (device.is_cuda()) device = c10::impl::VirtualGuardImpl(device.type()).getDevice();
    const py::gil_scoped_acquire gil;
    return (*maker)(meta.sizes, meta.type, device).cast<at::Tensor>();
  };
}

std::optional<pipeline::SavedTensors> saved_by_function(torch::autograd::Node& node) {
  const py::gil_scoped_acquire gil;
  // The node's class has no type information outside of torch; its object has.
  const auto object =
      py::reinterpret_steal<py::object>(torch::autograd::functionToPyObject(node.getptr()));
  if (!THPFunction_Check(object.ptr())) return std::nullopt;
  pipeline::SavedTensors saved;
  for (auto& one : reinterpret_cast<THPFunction*>(object.ptr())->saved_variables) {
    saved.push_back(&one);
  }
  return saved;
}

class PyEngine {
 public:
  PyEngine(session::Session& session, int cuda_device, RunModule run_module,
           std::vector<std::string> module_names,
           py::typing::Callable<void()> after_backward_outside, MakeRemoteTensor remote_tensor,
           py::typing::Callable<int64_t()> memory_in_use) {
    const auto runner = shared_object(std::move(run_module));
    const auto after_backward = shared_object(std::move(after_backward_outside));
    const auto in_use = shared_object(std::move(memory_in_use));
    pipeline::EngineOptions options{
        .server = {.thread_setup =
                       [] {
                         static thread_local std::optional<ThreadState> kept;
                         kept.emplace();  // a failed backward has left its error in the old one
                       },
                   .check_interrupt = check_signals,
                   .target_name =
                       [names = std::move(module_names)](int64_t module) {
                         return names.at(static_cast<size_t>(module));
                       }},
        .run_module =
            [runner](int64_t module, TensorTree arguments, bool passes_on) {
              const py::gil_scoped_acquire gil;
              return from_python((*runner)(module, Bytes{std::move(arguments.definition)},
                                           std::move(arguments.tensors), passes_on));
            },
        .device = cuda_device < 0
                      ? std::nullopt
                      : std::optional(c10::Device(c10::DeviceType::CUDA,
                                                  static_cast<c10::DeviceIndex>(cuda_device))),
        .describe = describe_error,
        .memory_in_use =
            [in_use] {
              const py::gil_scoped_acquire gil;
              return (*in_use)().cast<int64_t>();
            },
        .after_backward_outside =
            [after_backward] {
              const py::gil_scoped_acquire gil;
              (*after_backward)();
            },
        .direct = {.make_remote_tensor = remote_tensor_maker(std::move(remote_tensor))},
        .saved_tensors = saved_by_function};
    const py::gil_scoped_release no_gil;
    engine_ = pipeline::make_engine(session, std::move(options));
  }

  ~PyEngine() { close(); }
  PyEngine(const PyEngine&) = delete;
  PyEngine& operator=(const PyEngine&) = delete;

  void close() {
    const py::gil_scoped_release no_gil;
    engine_.reset();
  }

  void drive(const std::string& kind, int64_t microbatches, const RunMicrobatch& body,
             const Collect& collect) {
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

  at::Tensor data_of(const at::Tensor& remote_tensor) {
    const py::gil_scoped_release no_gil;
    return engine().data_of(remote_tensor);
  }

  PyTree serve() {
    const py::gil_scoped_release no_gil;
    return to_python(engine().serve());
  }

  PyTree call(const std::vector<std::pair<int, int64_t>>& route, Bytes definition,
              std::vector<at::Tensor> tensors) {
    const py::gil_scoped_release no_gil;
    pipeline::Route hops;
    for (const auto& [owner, module] : route) hops.push_back({.owner = owner, .target = module});
    return to_python(engine().call(hops, {std::move(definition.value), std::move(tensors)}));
  }

  void backward(const std::vector<at::Tensor>& tensors,
                const std::vector<std::optional<at::Tensor>>& gradients, double scale,
                bool keep_graph) {
    std::vector<at::Tensor> seeds;
    for (const auto& gradient : gradients) seeds.push_back(gradient.value_or(at::Tensor()));
    const py::gil_scoped_release no_gil;
    engine().backward(tensors, seeds, scale, keep_graph);
  }

  void track_parameters(const std::vector<at::Tensor>& parameters) {
    engine().track_parameters(parameters);
  }
  void complete_gradients() {
    const py::gil_scoped_release no_gil;
    engine().complete_gradients();
  }
  int64_t take_backwards() { return engine().take_backwards(); }
  [[nodiscard]] int64_t microbatch() { return engine().microbatch(); }
  [[nodiscard]] int64_t activation_bytes() { return engine().activation_bytes(); }
  metrics::EngineUse last_step() {
    return {.pipeline = engine().group_use(),
            .messages_sent = engine().last_step().messages_sent,
            .bytes_sent = engine().last_step().bytes_sent};
  }

 private:
  pipeline::Engine& engine() {
    SMP_CHECK(engine_ != nullptr, "the pipeline engine was used after smp.shutdown()");
    return *engine_;
  }

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

  py::class_<PyEngine>(
      module, "Engine",
      "Calls to modules of other ranks of a pipeline group; pipeline/engine/engine.h.")
      .def(py::init<session::Session&, int, RunModule, std::vector<std::string>,
                    py::typing::Callable<void()>, MakeRemoteTensor,
                    py::typing::Callable<int64_t()>>(),
           py::arg("session"), py::kw_only(), py::arg("cuda_device"), py::arg("run_module"),
           py::arg("module_names"), py::arg("after_backward_outside"), py::arg("remote_tensor"),
           py::arg("memory_in_use"),
           "Collective over the pipeline group. ``cuda_device`` is -1 for the CPU.")
      .def("close", &PyEngine::close, "Ends the threads and the connections to the other ranks.")
      .def("drive", &PyEngine::drive, py::arg("kind"), py::arg("microbatches"), py::arg("body"),
           py::arg("collect"),
           "Rank 0: runs ``body`` for each microbatch, then ``collect``, whose result all ranks\n"
           "get. Blocks until the step is over here.")
      .def("serve", &PyEngine::serve,
           "Other ranks: serve calls until the step ends; returns what ``collect`` did.")
      .def("data_of", &PyEngine::data_of, py::arg("remote_tensor"),
           "What a remote tensor stands for; any other tensor as it is.")
      .def("call", &PyEngine::call, py::arg("route"), py::arg("definition"), py::arg("tensors"),
           "In a step: calls the modules of ``route``, each an owner and its module, with the\n"
           "result of the one before. Blocks this microbatch; differentiable in ``tensors``.")
      .def("backward", &PyEngine::backward, py::arg("tensors"), py::arg("gradients"),
           py::arg("scale"), py::arg("keep_graph"),
           "In the body: backpropagates from ``tensors``; a gradient of None is 1, all are\n"
           "multiplied by ``scale``.")
      .def("track_parameters", &PyEngine::track_parameters, py::arg("parameters"),
           "Those of this rank: what take_backwards counts, and, in a deterministic order, whose\n"
           "gradients are added by microbatch.")
      .def("complete_gradients", &PyEngine::complete_gradients,
           "In a step, before gradients of parameters are looked at: computes those that\n"
           "``pipeline: zero_bubble`` has left for later; if there were any, none are from now on.")
      .def("take_backwards", &PyEngine::take_backwards,
           "More than 0 if a backward ran here since the last call or the beginning of the step.")
      .def("last_step", &PyEngine::last_step)
      .def_property_readonly("activation_bytes", &PyEngine::activation_bytes,
                             "Of the last step, on this rank.")
      .def_property_readonly("microbatch", &PyEngine::microbatch,
                             "The one that the calling thread works for; -1 for none.");

  using pipeline::ActivationStore;
  py::class_<ActivationStore::Handle, std::shared_ptr<ActivationStore::Handle>>(
      module, "StoredActivation", "One tensor in an ActivationStore; forgotten if nobody takes it.")
      .def("take", &ActivationStore::Handle::take, py::call_guard<py::gil_scoped_release>(),
           "The tensor, once. On the CPU blocks until it is back.");
  py::class_<ActivationStore::Stats>(module, "ActivationStats",
                                     "Of an ActivationStore. [tensors, bytes]")
      .def_readonly("put", &ActivationStore::Stats::put)
      .def_readonly("taken", &ActivationStore::Stats::taken)
      .def_readonly("waits", &ActivationStore::Stats::waits)
      .def_readonly("fast_bytes", &ActivationStore::Stats::fast_bytes)
      .def_readonly("fast", &ActivationStore::Stats::fast)
      .def_readonly("highest_fast", &ActivationStore::Stats::highest_fast)
      .def_readonly("slow_bytes", &ActivationStore::Stats::slow_bytes)
      .def_readonly("arena_bytes", &ActivationStore::Stats::arena_bytes);
  py::class_<ActivationStore>(module, "ActivationStore",
                              "Keeps activations in a slower memory until their backward;\n"
                              "pipeline/engine/activation_store.h.")
      .def(py::init([](int64_t horizon, int64_t bytes_per_second, int64_t most_fast) {
             return std::make_unique<ActivationStore>(ActivationStore::Options{
                 .horizon = horizon, .most_fast = most_fast, .bytes_per_second = bytes_per_second});
           }),
           py::arg("horizon"), py::arg("bytes_per_second") = 0, py::arg("most_fast") = 0)
      .def(
          "put",
          [](ActivationStore& store, const at::Tensor& tensor, int64_t microbatch) {
            return or_none(store.put(tensor, microbatch));
          },
          py::arg("tensor"), py::arg("microbatch"), py::call_guard<py::gil_scoped_release>(),
          "None for a tensor that is better kept. Nobody may change it afterwards.")
      .def("stats", &ActivationStore::stats);
}

}  // namespace smp::python
