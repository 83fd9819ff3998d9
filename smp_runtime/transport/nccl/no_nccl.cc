// SPDX-License-Identifier: Apache-2.0
// Stands in for nccl_library.cc in a build without GPU code.
#include "smp_runtime/core/error.h"
#include "smp_runtime/transport/nccl/nccl_library.h"

namespace smp::transport {

std::unique_ptr<NcclLibrary> nccl_library(int) { return nullptr; }

int nccl_version() { return 0; }

std::string gpu_identity(int) {
  throw InternalError("a GPU was asked for its name in a build without GPU code; please report it");
}

}  // namespace smp::transport
