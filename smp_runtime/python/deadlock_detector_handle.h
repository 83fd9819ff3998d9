// SPDX-License-Identifier: Apache-2.0
// A DeadlockDetector that Python objects may own: its thread, which asks Python for the script's
// line, is never waited for with Python's lock held.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include <pybind11/pybind11.h>

#include "smp_runtime/record/recorder.h"
#include "smp_runtime/session/deadlock/deadlock_detector.h"

namespace smp::python {

/// Deletes without Python's lock.
struct DeleteWithoutLock {
  template <typename T>
  void operator()(T* owned) const {
    if (PyGILState_Check() == 0) {
      delete owned;
      return;
    }
    const pybind11::gil_scoped_release release;
    delete owned;
  }
};

using WatchPtr = std::shared_ptr<session::DeadlockDetector>;

class DeadlockDetectorHandle {
 public:
  explicit DeadlockDetectorHandle(WatchPtr watch) : watch_(new WatchPtr(std::move(watch))) {}

  [[nodiscard]] const WatchPtr& watch() const { return *watch_; }

 private:
  std::unique_ptr<WatchPtr, DeleteWithoutLock> watch_;
};

/// Arguments of Python's, or None.
using RecorderArgument = std::optional<std::shared_ptr<record::Recorder>>;
using WatchArgument = std::optional<std::shared_ptr<DeadlockDetectorHandle>>;

/// For C++, which keeps the handle alive; nothing where there is none.
inline WatchPtr watch_of(const WatchArgument& handle) {
  return handle ? WatchPtr(*handle, (*handle)->watch().get()) : nullptr;
}

}  // namespace smp::python
