// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/error.h"
#include "smp_runtime/cuda/launch.h"

namespace smp::cuda {

void refuse_launch(const char* kernel) {
  throw InternalError("{} was called in a build without GPU code; please report it", kernel);
}

}  // namespace smp::cuda
