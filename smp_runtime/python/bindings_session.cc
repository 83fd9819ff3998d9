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
#include <pybind11/typing.h>
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

// session::FindMpi, which may return None.
using FindMpi = py::typing::Callable<py::typing::Optional<
    py::typing::Callable<session::Invitation(std::optional<session::Invitation>)>>(LaunchRanks)>;

SessionOwner make_session(const topology::ParallelConfig& config, const RuntimeOptions& options,
                          Variables variables, int number,
                          const std::optional<session::StorePtr>& store,
                          std::optional<std::pair<int, int>> world, const FindMpi& find_mpi,
                          py::typing::Callable<std::string()> line) {
  auto find = find_mpi.cast<session::FindMpi>();
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
                                   .store = store.value_or(nullptr),
                                   .world = world,
                                   .find_mpi = std::move(find),
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
  py::class_<LaunchRanks>(
      module, "LaunchRanks",
      "Which rank of the job a process is; ``local_rank`` and ``local_size`` are None where the\n"
      "launcher does not tell them, and numbers in a session.")
      .def_readonly("rank", &LaunchRanks::rank)
      .def_readonly("size", &LaunchRanks::size)
      .def_readonly("local_rank", &LaunchRanks::local_rank)
      .def_readonly("local_size", &LaunchRanks::local_size);

  py::class_<RuntimeOptions>(module, "RuntimeOptions",
                             "What a user may set by environment; cluster/runtime_options.h.")
      .def_readonly("parameters", &RuntimeOptions::parameters)
      .def_property_readonly(
          "log_level", [](const RuntimeOptions& self) { return static_cast<int>(self.log_level); })
      .def_readonly("timeout", &RuntimeOptions::timeout)
      .def_readonly("progress", &RuntimeOptions::progress)
      .def_readonly("saves_under_way", &RuntimeOptions::saves_under_way)
      .def_readonly("checkpoint_memory", &RuntimeOptions::checkpoint_memory)
      .def_readonly("self_checked_steps", &RuntimeOptions::self_checked_steps)
      .def_readonly("partitioner", &RuntimeOptions::partitioner)
      .def_readonly("direct_exchange", &RuntimeOptions::direct_exchange)
      .def_readonly("exchanges_under_way", &RuntimeOptions::exchanges_under_way)
      .def_readonly("exchanges_are_set", &RuntimeOptions::exchanges_are_set)
      .def_readonly("cuda_on_cpu", &RuntimeOptions::cuda_on_cpu)
      .def_readonly("deepspeed_names", &RuntimeOptions::deepspeed_names)
      .def_readonly("warnings", &RuntimeOptions::warnings);
  module.def("runtime_options", &cluster::make_runtime_options, py::arg("variables"),
             "Raises SMPConfigError for a variable that holds what it may not.");
  module.def(
      "runtime_variables",
      [] {
        std::vector<std::tuple<std::string, std::string, std::string>> rows;
        for (const VariableRow& row : cluster::kRuntimeVariables) {
          rows.emplace_back(row.name, row.standard, row.meaning);
        }
        return rows;
      },
      "Name, default and meaning of every variable that RuntimeOptions reads.");
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
  py::class_<Groups>(
      module, "Groups",
      "The groups of one rank, by the names of kinds: WORLD, MP, DP, PP, TP, RDP. Groups are made\n"
      "on first use, which is collective over their ranks.")
      .def(
          "ranks",
          [](const Groups& self, const std::string& kind) { return self.ranks(parse_group(kind)); },
          py::arg("kind"), "Of the job, ascending.")
      .def(
          "index",
          [](const Groups& self, const std::string& kind) { return self.index(parse_group(kind)); },
          py::arg("kind"), "Of this rank in its group.")
      .def("user_group", of_kind(&Groups::user_group), py::arg("kind"), without_gil,
           "The one that scripts get; the library puts nothing on it.")
      .def("internal_group", of_kind(&Groups::internal_group), py::arg("kind"), without_gil,
           "For the model's tensors, on its device.")
      .def("cpu_group", of_kind(&Groups::cpu_group), py::arg("kind"), without_gil,
           "For objects and flags.");
}

std::vector<Bytes> as_bytes(std::vector<std::string> texts) {
  std::vector<Bytes> all;
  for (std::string& text : texts) all.push_back({std::move(text)});
  return all;
}

void bind_barriers(py::module_& module) {
  const auto without_gil = py::call_guard<py::gil_scoped_release>();
  py::class_<DeadlockDetectorHandle, std::shared_ptr<DeadlockDetectorHandle>>(
      module, "DeadlockDetector",
      "Tells ranks that wait for each other in different calls;\n"
      "session/deadlock/deadlock_detector.h.");
  py::class_<WaitingBlock>(module, "WaitingBlock", "What StoreBarriers.waiting returns.")
      .def("__enter__", &WaitingBlock::enter)
      .def(
          "__exit__",
          [](WaitingBlock& self, const py::object&, const py::object&, const py::object&) {
            self.exit();
          },
          py::arg("kind"), py::arg("error"), py::arg("trace"));
  py::class_<StoreBarriers>(module, "StoreBarriers",
                            "Waits for other ranks over the job's store; session/store_barriers.h.")
      .def("all", &StoreBarriers::all, py::arg("what"), py::arg("label"), py::arg("ranks"),
           py::arg("advice") = "", without_gil,
           "Returns when all ``ranks``, this one among them, have called it under this ``label``.\n"
           "Raises SMPCommTimeoutError that begins with ``what`` and names the absent ranks.")
      .def(
          "waiting",
          [](StoreBarriers& self, std::string what, std::string label, std::vector<int> needs) {
            return std::make_unique<WaitingBlock>(self, std::move(what), std::move(label),
                                                  std::move(needs));
          },
          py::arg("what"), py::arg("label"), py::arg("needs"),
          "Around a call that does not end before all ranks in ``needs`` make it, too, under the\n"
          "same ``label``. Waits inside raise SMPMismatchError where ranks are in calls that wait\n"
          "for each other, and so do later calls.")
      .def_property("timeout", &StoreBarriers::timeout, &StoreBarriers::set_timeout)
      .def_property_readonly(
          "watch",
          [](StoreBarriers& self) -> WatchArgument {
            if (!self.watch()) return std::nullopt;
            return std::make_shared<DeadlockDetectorHandle>(self.watch());
          },
          "For other waits to ask; may be None.");
  py::class_<ObjectExchange>(module, "ObjectExchange",
                             "Bytes between ranks; blocking. Ranks are those of the job.")
      .def(
          "send",
          [](ObjectExchange& self, const std::string& what, const std::string& kind, Bytes data,
             int destination) {
            self.send(what, parse_group(kind), std::move(data.value), destination);
          },
          py::arg("what"), py::arg("kind"), py::arg("data"), py::arg("destination"), without_gil,
          "Blocks until the destination has it; to this rank itself it is kept.")
      .def(
          "broadcast",
          [](ObjectExchange& self, const std::string& what, const std::string& kind,
             const Bytes& data) { self.broadcast(what, parse_group(kind), data.value); },
          py::arg("what"), py::arg("kind"), py::arg("data"), without_gil,
          "To all others of this rank's group, who receive. Blocks until they have it.")
      .def(
          "receive",
          [](ObjectExchange& self, const std::string& what, const std::string& kind, int source) {
            return Bytes{self.receive(what, parse_group(kind), source)};
          },
          py::arg("what"), py::arg("kind"), py::arg("source"), without_gil,
          "What another rank sent or broadcast.")
      .def(
          "take_own",
          [](ObjectExchange& self, const std::string& kind) -> std::optional<Bytes> {
            auto data = self.take_own(parse_group(kind));
            if (!data) return std::nullopt;
            return Bytes{std::move(*data)};
          },
          py::arg("kind"),
          "What this rank sent to itself, the oldest first; None if there is nothing.")
      .def(
          "all_gather",
          [](ObjectExchange& self, const std::string& what, const std::string& kind,
             const Bytes& data) {
            return as_bytes(self.all_gather(what, parse_group(kind), data.value));
          },
          py::arg("what"), py::arg("kind"), py::arg("data"), without_gil,
          "By rank in the group. Collective over it.")
      .def(
          "all_gather_among",
          [](ObjectExchange& self, const std::string& what, const std::string& label,
             const std::vector<int>& ranks, const Bytes& data) {
            return as_bytes(self.all_gather(what, label, ranks, data.value));
          },
          py::arg("what"), py::arg("label"), py::arg("ranks"), py::arg("data"), without_gil,
          "The same among some ranks of the job.");
}

}  // namespace

void bind_session(py::module_& module) {
  const auto without_gil = py::call_guard<py::gil_scoped_release>();
  module.def(
      "set_fabric_defaults", &transport::set_fabric_defaults,
      "Variables of libfabric that have other defaults here, where the environment does not\n"
      "set them; transport/fabric/fabric_library.h.");
  bind_launch(module);
  bind_groups(module);
  bind_barriers(module);
  py::class_<record::Recorder, std::shared_ptr<record::Recorder>>(
      module, "Recorder", "Recorder of this rank's activities; record/recorder.h.");
  py::class_<Session, SessionOwner>(
      module, "Session",
      "One process's part in a job; session/session.h. Collective to make.\n"
      "\n"
      "Args:\n"
      "    store: that of a c10d world that is there; else one is opened.\n"
      "    world: rank and size in that world.")
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
          py::arg("tensors"), py::arg("cpu"), py::arg("by_host"), py::arg("make"), without_gil,
          "Lets groups be made, by ``make``, of these backends. Collective.")
      .def("all_reduce", &Session::all_reduce, py::arg("what"), py::arg("tensor"), py::arg("group"),
           py::arg("operation"), without_gil,
           "In place. ``what`` begins its errors, which name absent ranks.")
      .def("leave", &Session::leave, py::arg("failed"), py::arg("serves"), without_gil,
           "``failed``: waits for nobody. ``serves``: rank 0 serves the store, and goes last.")
      .def("some_rank_ended_well", &Session::some_rank_ended_well, without_gil,
           "Whether some rank has left without having failed.")
      .def_property_readonly("config", &Session::config, kInside)
      .def_property_readonly("options", &Session::options, kInside)
      .def_property_readonly("ranks", &Session::ranks, kInside)
      .def_property_readonly("barriers", &Session::barriers, kInside)
      .def_property_readonly("groups", &Session::groups, kInside)
      .def_property_readonly("objects", &Session::objects, kInside)
      .def_property_readonly(
          "recorder",
          [](const Session& self) -> RecorderArgument {
            if (!self.recorder()) return std::nullopt;
            return self.recorder();
          },
          "None where the environment wants no file of it.")
      .def_property_readonly("store", &Session::store, "Texts by key, of this session alone.")
      .def_property_readonly("world_store", &Session::world_store,
                             "The same for c10d's world, whose keys are its own.");
}

}  // namespace smp::python
