// SPDX-License-Identifier: Apache-2.0
// What the files of the extension module smdistributed._runtime add to it.
#pragma once

#include <pybind11/pybind11.h>

namespace smp::python {

/// The kinds of errors as Python exceptions; first, since the others raise them.
void bind_errors(pybind11::module_& module);
void bind_topology(pybind11::module_& module);
void bind_partition(pybind11::module_& module);
void bind_pipeline(pybind11::module_& module);
void bind_checkpoint(pybind11::module_& module);
void bind_sharding(pybind11::module_& module);
void bind_optimizer(pybind11::module_& module);
void bind_tensor_parallel(pybind11::module_& module);

}  // namespace smp::python
