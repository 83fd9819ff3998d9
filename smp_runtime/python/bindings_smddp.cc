// SPDX-License-Identifier: Apache-2.0
// The extension module smdistributed._smddp: the backend of smdistributed.dataparallel. It stands
// alone, so that a script with data parallelism only loads nothing of the model-parallel runtime.
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "smp/version.h"
#include <pybind11/chrono.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <unistd.h>

#include "smp_runtime/cluster/launch_ranks.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"
#include "smp_runtime/smddp/backend/pending_work.h"
#include "smp_runtime/smddp/backend/smddp_backend.h"
#include "smp_runtime/smddp/backend/smddp_options.h"
#include "smp_runtime/transport/fabric/fabric_library.h"

namespace smp::python {
namespace {

namespace py = pybind11;

[[noreturn]] void raise(const py::object& type, const Error& error) {
  PyErr_SetString(type.ptr(), (std::string("smddp: ") + error.what()).c_str());
  throw py::error_already_set();
}

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

/// Null for None, and for another backend.
smddp::SmddpBackend* as_ours(const std::optional<BackendPtr>& backend) {
  return backend ? dynamic_cast<smddp::SmddpBackend*>(backend->get()) : nullptr;
}

BackendPtr create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                  std::chrono::milliseconds timeout, const std::vector<int64_t>& global_ranks,
                  const std::optional<BackendPtr>& job) {
  try {
    static const bool log_is_set = [rank] {  // before the first group has threads
      const Variables variables = read_variables();
      log::configure("smddp", smddp::log_level(variables));
      if (rank != 0) return true;
      for (const std::string& line : smddp::describe_unknown_options(variables)) {
        SMP_LOG(warning, "{}", line);
      }
      return true;
    }();
    static_cast<void>(log_is_set);
    smddp::SmddpBackend::EndOf end_of;
    if (as_ours(job) != nullptr) {
      end_of = [job](int of_rank) { return as_ours(job)->end_of(of_rank); };
    }
    const py::gil_scoped_release release;  // it waits for the other ranks
    return c10::make_intrusive<smddp::SmddpBackend>(store, rank, size, timeout, global_ranks,
                                                    std::move(end_of));
  } catch (const ConfigError& error) {
    raise(py::module_::import("builtins").attr("ValueError"), error);
  } catch (const Error& error) {
    raise(py::module_::import("torch.distributed").attr("DistBackendError"), error);
  }
}

bool holds_lock() { return Py_IsInitialized() != 0 && PyGILState_Check() != 0; }

void without_lock(const std::function<void()>& action) {
  const py::gil_scoped_release release;
  action();
}

/// Python's handlers run in its first thread only, which is the process's.
void handle_signals() {
  if (Py_IsInitialized() == 0 || gettid() != getpid()) return;
  const py::gil_scoped_acquire lock;
  if (PyErr_CheckSignals() == 0) return;
  python_error raised;  // torch's, which may be thrown again wherever the work is waited for
  raised.persist();
  throw raised;
}

}  // namespace
}  // namespace smp::python

PYBIND11_MODULE(_smddp, module) {
  module.doc() = "The C++ side of smdistributed.dataparallel; its names may change without notice.";
  smp::check_torch();
  // Base types of the backend; without them its Python objects could not be made.
  pybind11::module_::import("torch.distributed");
  smp::smddp::set_interpreter({.holds_lock = &smp::python::holds_lock,
                               .without_lock = &smp::python::without_lock,
                               .handle_signals = &smp::python::handle_signals});
  module.def(
      "create_backend", &smp::python::create, pybind11::arg("store"), pybind11::arg("rank"),
      pybind11::arg("size"), pybind11::arg("timeout"), pybind11::arg("global_ranks"),
      pybind11::arg("job") = pybind11::none(),
      "A c10d backend; smddp/backend/smddp_backend.h. Collective over the group. ``job``, if\n"
      "it is such a backend too, tells which ranks of the job have ended.");
  module.def(
      "set_fabric_defaults", &smp::transport::set_fabric_defaults,
      "Variables of libfabric that have other defaults here, where the environment does not\n"
      "set them.");
  module.def(
      "missing_rank_variables", &smp::cluster::missing_rank_variables, pybind11::arg("variables"),
      "RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE as Open MPI, PMI or Slurm say them,\n"
      "and the place of the rendezvous where all ranks are on this host or Slurm names the\n"
      "first one, as far as they are unset; empty for a process that no launcher started.");
  module.def(
      "leave",
      [](const std::optional<smp::python::BackendPtr>& backend, bool failed) {
        const pybind11::gil_scoped_release release;  // it waits for the other ranks
        if (auto* ours = smp::python::as_ours(backend)) ours->leave(failed);
      },
      pybind11::arg("backend"), pybind11::arg("failed"),
      "Leaves the group at the end of a process, after what is queued for it, at most 10 s; of a\n"
      "process that has ``failed`` what is queued ends with an error at once. A ``backend`` of\n"
      "another kind stays as it is.");
}
