// SPDX-License-Identifier: Apache-2.0
// Python's view of smp_runtime/tensor_parallel.
#include <memory>
#include <string>
#include <utility>

#include <torch/csrc/utils/pybind.h>

#include "smp_runtime/python/bindings.h"
#include "smp_runtime/tensor_parallel/exchange_node.h"
#include "smp_runtime/tensor_parallel/movement.h"
#include "smp_runtime/tensor_parallel/tensor_exchange.h"

namespace smp::python {
namespace {

using tensor_parallel::Border;
using tensor_parallel::Movement;
using tensor_parallel::MovementKind;
using tensor_parallel::TensorExchange;

}  // namespace

void bind_tensor_parallel(py::module_& module) {
  using no_gil = py::call_guard<py::gil_scoped_release>;

  py::class_<Movement>(module, "Movement", "How tensors change hands in a tensor-parallel group.")
      .def_static("stay", [] { return Movement{.kind = MovementKind::kStay}; })
      .def_static(
          "slice", [](int dim) { return Movement{.kind = MovementKind::kSlice, .dim = dim}; },
          py::arg("dim"))
      .def_static(
          "gather", [](int dim) { return Movement{.kind = MovementKind::kGather, .dim = dim}; },
          py::arg("dim"))
      .def_static(
          "reduce_scatter",
          [](int dim) { return Movement{.kind = MovementKind::kReduceScatter, .dim = dim}; },
          py::arg("dim"))
      .def_static("all_reduce", [] { return Movement{.kind = MovementKind::kAllReduce}; })
      .def_static(
          "exchange",
          [](int dim, int join) {
            return Movement{.kind = MovementKind::kExchange, .dim = dim, .join = join};
          },
          py::arg("dim"), py::arg("join"));

  py::class_<Border>(module, "Border", "A movement forward, and one backward with a factor.")
      .def(py::init([](Movement forward, Movement backward, double backward_scale) {
             return Border{
                 .forward = forward, .backward = backward, .backward_scale = backward_scale};
           }),
           py::arg("forward"), py::arg("backward"), py::arg("backward_scale") = 1.0);

  py::class_<TensorExchange, std::shared_ptr<TensorExchange>>(
      module, "TensorExchange", "The collectives of one tensor-parallel group.")
      .def(py::init<std::string, int, int>(), py::arg("group_name"), py::arg("size"),
           py::arg("rank"))
      .def_property_readonly("size", &TensorExchange::size)
      .def_property_readonly("rank", &TensorExchange::rank)
      .def_property_readonly("bytes_sent", &TensorExchange::bytes_sent)
      .def("move", &TensorExchange::move, py::arg("movement"), py::arg("tensor"), no_gil(),
           "The tensor after a movement, without a history for autograd.")
      .def(
          "cross",
          [](const std::shared_ptr<TensorExchange>& exchange, const Border& border,
             const at::Tensor& tensor) { return tensor_parallel::cross(exchange, border, tensor); },
          py::arg("border"), py::arg("tensor"), no_gil(),
          "The tensor beyond a border; its gradient comes back over it.");
}

}  // namespace smp::python
