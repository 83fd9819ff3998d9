// SPDX-License-Identifier: Apache-2.0
// Python's view of smp_runtime/core: the four kinds of errors as exceptions, and the log.
#include <exception>
#include <string>

#include <pybind11/pybind11.h>

#include "smp_runtime/checkpoint/session/agreement.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"
#include "smp_runtime/python/bindings.h"
#include "smp_runtime/session/deadlock/wait_graph.h"

namespace smp::python {
namespace {

namespace py = pybind11;

// The classes are Python's, so that users can subclass, document and pickle them; they are looked
// up when needed, for their package imports this module.
void set(const char* module, const char* name, const Error& error) {
  const py::object type = py::module_::import(module).attr(name);
  PyErr_SetString(type.ptr(), error.what());
}

/// Makes `held`, if it is one of the library's, Python's current error.
void set_python_error(const std::exception_ptr& held) {
  constexpr const char* kTorch = "smdistributed.modelparallel.torch.exceptions";
  constexpr const char* kBackend = "smdistributed.modelparallel.backend.exceptions";
  try {
    if (held) std::rethrow_exception(held);
  } catch (const ConfigError& error) {
    set(kTorch, "SMPConfigError", error);
  } catch (const session::WaitTimeout& error) {
    set(kTorch, "SMPCommTimeoutError", error);
  } catch (const checkpoint::CheckpointError& error) {
    set(kTorch, "SMPCheckpointError", error);
  } catch (const HostError& error) {
    set(kBackend, "SMPConnectionError", error);
  } catch (const session::CallMismatch& error) {
    set(kTorch, "SMPMismatchError", error);
  } catch (const UserCodeError& error) {
    set(kTorch, "SMPStepError", error);
  } catch (const Error& error) {
    set(kTorch, "SMPInternalError", error);
  }
}

const char* words_of(Advice advice) {
  switch (advice) {
    case Advice::kOutsideOfStep:
      return "; call it inside a function decorated with smp.step";
    case Advice::kForeignBackward:
      return "; call model.backward(loss) in place of loss.backward()";
    case Advice::kFewerBatches:
      return " or train inside model.join()";
    case Advice::kShardedValue:
      return "; elsewhere read them inside of `with smp.gathered_parameters(model):` on all ranks, "
             "or take them from model.state_dict(), and write them by model.load_state_dict()";
    case Advice::kRemoteValue:
      return ": call the module that has it, or keep it on the partition of who reads it with "
             "smp.set_partition; outside of steps take model.local_parameters(), or "
             "model.state_dict() on all ranks";
    case Advice::kLostWrite:
      return ": use model.load_state_dict()";
  }
  return "";
}

}  // namespace

void raise_in_python(const std::exception_ptr& error) {
  const py::gil_scoped_acquire gil;
  set_python_error(error);
  throw py::error_already_set();
}

void bind_errors(py::module_& module) {
  set_advice_words(&words_of);
  py::register_local_exception_translator([](std::exception_ptr held) { set_python_error(held); });

  module.def(
      "write_log",
      [](int level, const std::string& message) {
        if (log::enabled(static_cast<log::Level>(level))) {
          log::write(static_cast<log::Level>(level), message);
        }
      },
      py::arg("level"), py::arg("message"),
      "Into the log of this rank; levels are those of :mod:`logging`.");
}

}  // namespace smp::python
