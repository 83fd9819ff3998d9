// SPDX-License-Identifier: Apache-2.0
// Python's record of a C++ thread.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace smp::python {

/// While it lives, its thread keeps one Python thread state; without it each gil_scoped_acquire of
/// a thread that is not Python's makes a new one and gives it up, memory pages included. Made and
/// destroyed without Python's lock, which both wait for; best as a thread_local.
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

}  // namespace smp::python
