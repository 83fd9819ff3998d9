// SPDX-License-Identifier: Apache-2.0
// A WaitWatch that Python objects may own: its thread, which asks Python for the script's line, is
// never waited for with Python's lock held.
#pragma once

#include <memory>
#include <utility>

#include <pybind11/pybind11.h>

#include "smp_runtime/session/waits/wait_watch.h"

namespace smp::python {

class WaitWatchHandle {
 public:
  template <typename... Args>
  explicit WaitWatchHandle(Args&&... args)
      : watch_(std::make_unique<session::WaitWatch>(std::forward<Args>(args)...)) {}
  ~WaitWatchHandle() {
    if (PyGILState_Check() == 0) return;
    const pybind11::gil_scoped_release release;
    watch_.reset();
  }
  WaitWatchHandle(const WaitWatchHandle&) = delete;
  WaitWatchHandle& operator=(const WaitWatchHandle&) = delete;

  session::WaitWatch& watch() { return *watch_; }

 private:
  std::unique_ptr<session::WaitWatch> watch_;
};

/// For C++, which keeps the handle alive; nothing where there is none.
inline std::shared_ptr<session::WaitWatch> watch_of(
    const std::shared_ptr<WaitWatchHandle>& handle) {
  return handle ? std::shared_ptr<session::WaitWatch>(handle, &handle->watch()) : nullptr;
}

}  // namespace smp::python
