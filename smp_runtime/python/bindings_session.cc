// SPDX-License-Identifier: Apache-2.0
// What a rank shares with its job over the store.
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/utils/pybind.h>

#include "smp_runtime/python/bindings.h"
#include "smp_runtime/python/wait_watch_handle.h"

namespace smp::python {
namespace {

namespace py = pybind11;

/// On a connection of its own: another one may be taken by a call that waits.
class C10dWaitStore : public session::WaitStore {
 public:
  explicit C10dWaitStore(const c10::intrusive_ptr<c10d::Store>& store) : store_(store->clone()) {
    store_->setTimeout(std::chrono::seconds(10));
  }
  void set(const std::string& key, const std::string& text) override { store_->set(key, text); }
  std::optional<std::string> get(const std::string& key) override {
    if (!store_->check({key})) return std::nullopt;  // get() would wait for it
    return store_->get_to_str(key);
  }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

std::shared_ptr<WaitWatchHandle> make_watch(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            py::object line) {
  auto waits = [&] {
    const py::gil_scoped_release release;
    return std::make_unique<C10dWaitStore>(store);
  }();
  auto ask = [call = shared_object(std::move(line))] {
    const py::gil_scoped_acquire gil;
    try {
      return (*call)().cast<std::string>();
    } catch (const std::exception&) {  // the place is an extra; the wait is told without it
      return std::string();
    }
  };
  return std::make_shared<WaitWatchHandle>(std::move(waits), rank, std::move(ask));
}

}  // namespace

void bind_session(py::module_& module) {
  const auto without_gil = py::call_guard<py::gil_scoped_release>();
  py::class_<WaitWatchHandle, std::shared_ptr<WaitWatchHandle>>(module, "WaitWatch")
      .def(py::init(&make_watch), py::arg("store"), py::arg("rank"), py::arg("line"))
      .def(
          "begin",
          [](WaitWatchHandle& self, std::string call, const std::string& label,
             std::vector<int> needs) {
            self.watch().begin(std::move(call), label, std::move(needs));
          },
          py::arg("call"), py::arg("label"), py::arg("needs"), without_gil)
      .def(
          "end", [](WaitWatchHandle& self) { self.watch().end(); }, without_gil)
      .def(
          "check", [](WaitWatchHandle& self) { self.watch().check(); }, without_gil)
      .def(
          "leave", [](WaitWatchHandle& self) { self.watch().leave(); }, without_gil);
}

}  // namespace smp::python
