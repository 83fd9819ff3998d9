// SPDX-License-Identifier: Apache-2.0
// Python's view of smp_runtime/session.
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "smp_runtime/python/bindings.h"
#include "smp_runtime/python/deadlock_detector_handle.h"
#include "smp_runtime/session/session.h"
#include "smp_runtime/transport/fabric/fabric_library.h"

namespace smp::python {
namespace {

namespace py = pybind11;
using cluster::LaunchRanks;
using cluster::RuntimeOptions;
using session::Groups;
using session::ObjectExchange;
using session::Session;
using session::StoreBarriers;
using std::chrono::milliseconds;
using topology::parse_group;

using SessionOwner = std::unique_ptr<Session, DeleteWithoutLock>;
const auto kInside = py::return_value_policy::reference_internal;

SessionOwner make_session(const topology::ParallelConfig& config, const RuntimeOptions& options,
                          Variables variables, int number, session::StorePtr store,
                          std::optional<std::pair<int, int>> world, session::FindMpi find_mpi,
                          py::object line) {
  auto ask = [call = shared_object(std::move(line))] {
    const py::gil_scoped_acquire gil;
    try {
      return (*call)().cast<std::string>();
    } catch (const std::exception&) {  // the place is an extra; the wait is told without it
      return std::string();
    }
  };
  const py::gil_scoped_release release;
  return SessionOwner(new Session({.config = config,
                                   .options = options,
                                   .variables = std::move(variables),
                                   .number = number,
                                   .store = std::move(store),
                                   .world = world,
                                   .find_mpi = std::move(find_mpi),
                                   .script_line = std::move(ask)}));
}

/// `with` around a wait.
class WaitingBlock {
 public:
  WaitingBlock(session::StoreBarriers& barriers, std::string what, std::string label,
               std::vector<int> needs)
      : watch_(barriers.watch()),
        what_(std::move(what)),
        label_(std::move(label)),
        needs_(std::move(needs)) {}
  void enter() {
    const py::gil_scoped_release release;
    call_.emplace(watch_.get(), what_, label_, needs_);
  }
  void exit() {
    const py::gil_scoped_release release;
    call_.reset();
  }

 private:
  const WatchPtr watch_;
  const std::string what_;
  const std::string label_;
  const std::vector<int> needs_;
  std::optional<session::WaitingCall> call_;
};

void bind_launch(py::module_& module) {
  py::class_<LaunchRanks>(module, "LaunchRanks", "Which rank of the job a process is.")
      .def_readonly("rank", &LaunchRanks::rank)
      .def_readonly("size", &LaunchRanks::size)
      .def_readonly("local_rank", &LaunchRanks::local_rank)
      .def_readonly("local_size", &LaunchRanks::local_size);

  py::class_<RuntimeOptions>(module, "RuntimeOptions", "What a user may set by environment.")
      .def_readonly("parameters", &RuntimeOptions::parameters)
      .def_property_readonly(
          "log_level", [](const RuntimeOptions& self) { return static_cast<int>(self.log_level); })
      .def_readonly("timeout", &RuntimeOptions::timeout)
      .def_readonly("progress", &RuntimeOptions::progress)
      .def_readonly("self_checked_steps", &RuntimeOptions::self_checked_steps)
      .def_readonly("partitioner", &RuntimeOptions::partitioner)
      .def_readonly("direct_exchange", &RuntimeOptions::direct_exchange)
      .def_readonly("exchanges_under_way", &RuntimeOptions::exchanges_under_way)
      .def_readonly("exchanges_are_set", &RuntimeOptions::exchanges_are_set)
      .def_readonly("cuda_on_cpu", &RuntimeOptions::cuda_on_cpu)
      .def_readonly("deepspeed_names", &RuntimeOptions::deepspeed_names)
      .def_readonly("warnings", &RuntimeOptions::warnings);
  module.def("runtime_options", &cluster::make_runtime_options, py::arg("variables"));
  module.def(
      "runtime_variables",
      [] {
        std::vector<std::tuple<std::string, std::string, std::string>> rows;
        for (const VariableRow& row : cluster::kRuntimeVariables) {
          rows.emplace_back(row.name, row.standard, row.meaning);
        }
        return rows;
      },
      "Name, default and meaning of each variable of runtime_options().");
}

void bind_groups(py::module_& module) {
  const auto without_gil = py::call_guard<py::gil_scoped_release>();
  // Groups of a kind, by its name.
  const auto of_kind = [](session::GroupPtr (Groups::*get)(topology::Group)) {
    return [get](Groups& self, const std::string& kind) { return (self.*get)(parse_group(kind)); };
  };
  py::class_<session::GroupRequest>(module, "GroupRequest", "What a c10d group is to be.")
      .def_readonly("ranks", &session::GroupRequest::ranks)
      .def_readonly("backend", &session::GroupRequest::backend)
      .def_readonly("name", &session::GroupRequest::name)
      .def_readonly("description", &session::GroupRequest::description)
      .def_readonly("timeout", &session::GroupRequest::timeout);
  py::class_<Groups>(module, "Groups", "The groups of one rank.")
      .def(
          "ranks",
          [](const Groups& self, const std::string& kind) { return self.ranks(parse_group(kind)); },
          py::arg("kind"))
      .def(
          "index",
          [](const Groups& self, const std::string& kind) { return self.index(parse_group(kind)); },
          py::arg("kind"))
      .def("user_group", of_kind(&Groups::user_group), py::arg("kind"), without_gil)
      .def("internal_group", of_kind(&Groups::internal_group), py::arg("kind"), without_gil)
      .def("cpu_group", of_kind(&Groups::cpu_group), py::arg("kind"), without_gil);
}

void bind_barriers(py::module_& module) {
  const auto without_gil = py::call_guard<py::gil_scoped_release>();
  py::class_<DeadlockDetectorHandle, std::shared_ptr<DeadlockDetectorHandle>>(
      module, "DeadlockDetector", "Tells ranks that wait for each other in different calls.");
  py::class_<WaitingBlock>(module, "WaitingBlock")
      .def("__enter__", &WaitingBlock::enter)
      .def("__exit__", [](WaitingBlock& self, const py::args&) { self.exit(); });
  py::class_<StoreBarriers>(module, "StoreBarriers", "Waits for other ranks over the job's store.")
      .def("all", &StoreBarriers::all, py::arg("what"), py::arg("label"), py::arg("ranks"),
           py::arg("advice") = "", without_gil)
      .def(
          "waiting",
          [](StoreBarriers& self, std::string what, std::string label, std::vector<int> needs) {
            return std::make_unique<WaitingBlock>(self, std::move(what), std::move(label),
                                                  std::move(needs));
          },
          py::arg("what"), py::arg("label"), py::arg("needs"))
      .def_property("timeout", &StoreBarriers::timeout, &StoreBarriers::set_timeout)
      .def_property_readonly("watch", [](StoreBarriers& self) {
        return self.watch() ? std::make_shared<DeadlockDetectorHandle>(self.watch()) : nullptr;
      });
  py::class_<ObjectExchange>(module, "ObjectExchange", "Bytes between ranks.")
      .def(
          "send",
          [](ObjectExchange& self, const std::string& what, const std::string& kind,
             std::string bytes, int destination) {
            self.send(what, parse_group(kind), std::move(bytes), destination);
          },
          py::arg("what"), py::arg("kind"), py::arg("data"), py::arg("destination"), without_gil)
      .def(
          "broadcast",
          [](ObjectExchange& self, const std::string& what, const std::string& kind,
             const std::string& bytes) { self.broadcast(what, parse_group(kind), bytes); },
          py::arg("what"), py::arg("kind"), py::arg("data"), without_gil)
      .def(
          "receive",
          [](ObjectExchange& self, const std::string& what, const std::string& kind, int source) {
            std::string bytes;
            {
              const py::gil_scoped_release release;
              bytes = self.receive(what, parse_group(kind), source);
            }
            return py::bytes(bytes);
          },
          py::arg("what"), py::arg("kind"), py::arg("source"))
      .def(
          "take_own",
          [](ObjectExchange& self, const std::string& kind) -> std::optional<py::bytes> {
            const auto bytes = self.take_own(parse_group(kind));
            return bytes ? std::optional<py::bytes>(*bytes) : std::nullopt;
          },
          py::arg("kind"))
      .def(
          "all_gather",
          [](ObjectExchange& self, const std::string& what, const std::string& kind,
             const std::string& bytes) {
            std::vector<std::string> gathered;
            {
              const py::gil_scoped_release release;
              gathered = self.all_gather(what, parse_group(kind), bytes);
            }
            return std::vector<py::bytes>(gathered.begin(), gathered.end());
          },
          py::arg("what"), py::arg("kind"), py::arg("data"));
}

}  // namespace

void bind_session(py::module_& module) {
  const auto without_gil = py::call_guard<py::gil_scoped_release>();
  module.def("set_fabric_defaults", &transport::set_fabric_defaults);
  bind_launch(module);
  bind_groups(module);
  bind_barriers(module);
  py::class_<Session, SessionOwner>(module, "Session", "One process's part in a job.")
      .def(py::init(&make_session), py::kw_only(), py::arg("config"), py::arg("options"),
           py::arg("variables"), py::arg("number"), py::arg("store"), py::arg("world"),
           py::arg("find_mpi"), py::arg("script_line"))
      .def(
          "open_groups",
          [](Session& self, std::string tensors, std::string cpu, std::string by_host,
             session::MakeGroup make) {
            self.open_groups({std::move(tensors), std::move(cpu), std::move(by_host)},
                             std::move(make));
          },
          py::arg("tensors"), py::arg("cpu"), py::arg("by_host"), py::arg("make"), without_gil)
      .def("all_reduce", &Session::all_reduce, py::arg("what"), py::arg("tensor"), py::arg("group"),
           py::arg("operation"), without_gil)
      .def("leave", &Session::leave, py::arg("failed"), py::arg("serves"), without_gil)
      .def("some_rank_ended_well", &Session::some_rank_ended_well, without_gil)
      .def_property_readonly("config", &Session::config, kInside)
      .def_property_readonly("options", &Session::options, kInside)
      .def_property_readonly("ranks", &Session::ranks, kInside)
      .def_property_readonly("barriers", &Session::barriers, kInside)
      .def_property_readonly("groups", &Session::groups, kInside)
      .def_property_readonly("objects", &Session::objects, kInside)
      .def_property_readonly("store", &Session::store)
      .def_property_readonly("world_store", &Session::world_store);
}

}  // namespace smp::python
