// SPDX-License-Identifier: Apache-2.0
// The extension module smdistributed._runtime: all that Python calls in C++ but
// the c10d backend, which is smddp's.
#include "smp/version.h"
#include <pybind11/pybind11.h>

#include "smp_runtime/python/bindings.h"

PYBIND11_MODULE(_runtime, module) {
  module.doc() = "The C++ side of smdistributed; its names may change without notice.";
  smp::check_torch();
  // Signatures name a class as Python does where it has been bound before them.
  smp::python::bind_errors(module);
  smp::python::bind_topology(module);
  smp::python::bind_session(module);
  smp::python::bind_partition(module);
  smp::python::bind_planner(module);
  smp::python::bind_metrics(module);
  smp::python::bind_pipeline(module);
  smp::python::bind_ddp(module);
  smp::python::bind_checkpoint(module);
  smp::python::bind_sharding(module);
  smp::python::bind_masters(module);
  smp::python::bind_saved_state(module);
  smp::python::bind_optimizer(module);
  smp::python::bind_tensor_parallel(module);
}
