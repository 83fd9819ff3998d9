// SPDX-License-Identifier: Apache-2.0
// Python's view of smp_runtime/optimizer.
#include <vector>

#include <torch/csrc/utils/pybind.h>

#include "smp_runtime/cuda/launch.h"
#include "smp_runtime/optimizer/adam.h"
#include "smp_runtime/optimizer/squares.h"
#include "smp_runtime/python/bindings.h"

namespace smp::python {

void bind_optimizer(py::module_& module) {
  using no_gil = py::call_guard<py::gil_scoped_release>;
  using Tensors = std::vector<at::Tensor>;

  module.attr("HAS_CUDA") = cuda::kBuilt;
  module.def(
      "adam_step",
      [](const Tensors& parameters, const Tensors& gradients, const Tensors& first,
         const Tensors& second, double rate, double beta1, double beta2, double epsilon,
         double decay, bool decoupled, double scale1, double scale2, double factor) {
        optimizer::adam_step(parameters, gradients, first, second,
                             {.factor = factor,
                              .rate = rate,
                              .beta1 = beta1,
                              .beta2 = beta2,
                              .epsilon = epsilon,
                              .decay = decay,
                              .decoupled = decoupled,
                              .scale1 = scale1,
                              .scale2 = scale2});
      },
      py::arg("parameters"), py::arg("gradients"), py::arg("first"), py::arg("second"),
      py::kw_only(), py::arg("rate"), py::arg("beta1"), py::arg("beta2"), py::arg("epsilon"),
      py::arg("decay"), py::arg("decoupled"), py::arg("scale1"), py::arg("scale2"),
      py::arg("factor") = 1.0, no_gil(),
      "One update of all parameters in place; optimizer/adam.h.");
  module.def("sum_of_powers", &optimizer::sum_of_powers, py::arg("tensors"), py::arg("norm_type"),
             no_gil(),
             "Of all elements, a 0-dim tensor; the largest absolute value for an infinite norm.");
  module.def("sum_of_squares", &optimizer::sum_of_squares, py::arg("tensors"), no_gil(),
             "Of all elements, in 64 bits.");
}

}  // namespace smp::python
