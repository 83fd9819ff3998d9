// SPDX-License-Identifier: Apache-2.0
// Python's view of smp_runtime/tensor_parallel.
#include <memory>
#include <string>
#include <utility>

#include <torch/csrc/utils/pybind.h>

#include "smp_runtime/python/bindings.h"
#include "smp_runtime/python/deadlock_detector_handle.h"
#include "smp_runtime/tensor_parallel/layer_operators.h"
#include "smp_runtime/tensor_parallel/tensor_exchange.h"
#include "smp_runtime/tensor_parallel/torch_free/redistribution.h"

namespace smp::python {
namespace {

using tensor_parallel::Redistribution;
using tensor_parallel::RedistributionKind;
using tensor_parallel::RegionMapping;
using tensor_parallel::TensorExchange;

}  // namespace

void bind_tensor_parallel(py::module_& module) {
  using no_gil = py::call_guard<py::gil_scoped_release>;

  py::class_<Redistribution>(module, "Redistribution",
                             "How a tensor changes hands between tensor ranks;\n"
                             "tensor_parallel/torch_free/redistribution.h.")
      .def_static("stay", [] { return Redistribution{.kind = RedistributionKind::kStay}; })
      .def_static(
          "slice",
          [](int dim) { return Redistribution{.kind = RedistributionKind::kSlice, .dim = dim}; },
          py::arg("dim"))
      .def_static(
          "gather",
          [](int dim) { return Redistribution{.kind = RedistributionKind::kGather, .dim = dim}; },
          py::arg("dim"))
      .def_static(
          "reduce_scatter",
          [](int dim) {
            return Redistribution{.kind = RedistributionKind::kReduceScatter, .dim = dim};
          },
          py::arg("dim"))
      .def_static("all_reduce",
                  [] { return Redistribution{.kind = RedistributionKind::kAllReduce}; })
      .def_static(
          "exchange",
          [](int dim, int join) {
            return Redistribution{.kind = RedistributionKind::kExchange, .dim = dim, .join = join};
          },
          py::arg("dim"), py::arg("join"));

  py::class_<RegionMapping>(module, "RegionMapping",
                            "One redistribution forward, another one for the gradient.")
      .def(py::init([](Redistribution forward, Redistribution backward, double backward_scale) {
             return RegionMapping{
                 .forward = forward, .backward = backward, .backward_scale = backward_scale};
           }),
           py::arg("forward"), py::arg("backward"), py::arg("backward_scale") = 1.0);

  py::class_<TensorExchange, std::shared_ptr<TensorExchange>>(
      module, "TensorExchange",
      "One rank's side of its tensor-parallel group; tensor_parallel/tensor_exchange.h.")
      .def(py::init([](std::string group_name, int size, int rank, int under_way,
                       const WatchArgument& watch, const RecorderArgument& recorder) {
             return std::make_shared<TensorExchange>(std::move(group_name), size, rank, under_way,
                                                     watch_of(watch), recorder.value_or(nullptr));
           }),
           py::arg("group_name"), py::arg("size"), py::arg("rank"),
           py::arg("under_way") = tensor_parallel::ExchangeThrottle::kUnlimited,
           py::arg("watch") = py::none(), py::arg("recorder") = py::none())
      .def_property_readonly("bytes_sent", &TensorExchange::bytes_sent)
      .def("move", &TensorExchange::move, py::arg("redistribution"), py::arg("tensor"), no_gil(),
           "The tensor after ``redistribution``, without a history for autograd.")
      .def(
          "cross",
          [](const std::shared_ptr<TensorExchange>& exchange, const RegionMapping& mapping,
             const at::Tensor& tensor) {
            return tensor_parallel::cross(exchange, mapping, tensor);
          },
          py::arg("mapping"), py::arg("tensor"), no_gil(),
          "The same forward, differentiable: the gradient comes back in the old layout.")
      .def("layer_norm", &tensor_parallel::sliced_layer_norm, py::arg("states"), py::arg("weight"),
           py::arg("bias"), py::arg("epsilon"), no_gil(), "Over a last dim that is sliced.")
      .def("vocabulary_loss", &tensor_parallel::vocabulary_loss, py::arg("scores"),
           py::arg("labels"), py::arg("ignored"), no_gil(),
           "The loss of each row, of scores for a slice of the vocabulary.");

  module.def("masked_softmax", &tensor_parallel::masked_softmax, py::arg("scores"), py::arg("bias"),
             py::arg("causal"), py::arg("window"), no_gil(),
             "softmax(scores + bias), without later keys if ``causal``, and those ``window``\n"
             "before; tensor_parallel/layer_operators.h.");
  module.def("bias_gelu", &tensor_parallel::bias_gelu, py::arg("states"), py::arg("bias"),
             py::arg("approximate"), no_gil(),
             "gelu(states + bias), which keeps both and not their sum.");
}

}  // namespace smp::python
