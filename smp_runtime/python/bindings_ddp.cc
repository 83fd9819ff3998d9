// SPDX-License-Identifier: Apache-2.0
// Python's view of smp_runtime/ddp.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/python_comm_hook.h>
#include <torch/csrc/utils/pybind.h>

#include "smp_runtime/ddp/broadcast.h"
#include "smp_runtime/ddp/gradient_reducer.h"
#include "smp_runtime/python/bindings.h"
#include "smp_runtime/python/deadlock_detector_handle.h"

namespace smp::python {

void bind_ddp(py::module_& module) {
  py::class_<ddp::GradientReducer>(
      module, "GradientReducer",
      "Averages gradients over the ranks of a group, in buckets, while backwards still run;\n"
      "ddp/gradient_reducer.h.")
      .def(
          py::init([](std::string group_name, std::vector<at::Tensor> parameters,
                      int64_t bucket_bytes, bool overlap, bool may_join, const WatchArgument& watch,
                      std::string flags_group_name, const RecorderArgument& recorder) {
            return std::make_unique<ddp::GradientReducer>(
                ddp::GradientReducer::Options{.group_name = std::move(group_name),
                                              .bucket_bytes = bucket_bytes,
                                              .overlap = overlap,
                                              .may_join = may_join,
                                              .flags_group_name = std::move(flags_group_name),
                                              .watch = watch_of(watch),
                                              .recorder = recorder.value_or(nullptr)},
                std::move(parameters));
          }),
          py::arg("group_name"), py::arg("parameters"), py::arg("bucket_bytes"), py::arg("overlap"),
          py::arg("may_join") = true, py::arg("watch") = py::none(),
          py::arg("flags_group_name") = "", py::arg("recorder") = py::none())
      .def(
          "set_comm_hook",
          [](ddp::GradientReducer& reducer, Any state,
             py::typing::Callable<Any(py::ellipsis)> hook) {
            reducer.set_comm_hook(
                std::make_unique<c10d::PythonCommHook>(std::move(state), std::move(hook)));
          },
          py::arg("state"), py::arg("hook"),
          "It reduces the buckets in place of the all-reduce and its division.")
      .def("begin_step", &ddp::GradientReducer::begin_step, py::arg("due"),
           "``due``: gradients are averaged at the end of this step.")
      .def("average", &ddp::GradientReducer::average, py::call_guard<py::gil_scoped_release>(),
           "Makes each gradient the mean over the group. Blocks, at most for the group's timeout.")
      .def_property_readonly(
          "progress",
          [](const ddp::GradientReducer& reducer) {
            const auto progress = reducer.progress();
            return std::pair(progress.early, progress.buckets);
          },
          "Buckets that were on their way before the end of the last step, and all.");

  module.def(
      "broadcast_tensors",
      [](const std::string& group_name, const std::vector<at::Tensor>& tensors, int root,
         bool may_join, const WatchArgument& watch) {
        ddp::broadcast_tensors(group_name, tensors, root, may_join, watch_of(watch).get());
      },
      py::arg("group_name"), py::arg("tensors"), py::arg("root"), py::arg("may_join") = true,
      py::arg("watch") = py::none(), py::call_guard<py::gil_scoped_release>(),
      "Overwrites ``tensors`` with those of the group's rank ``root``. Collective.");
}

}  // namespace smp::python
