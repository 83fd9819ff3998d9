// SPDX-License-Identifier: Apache-2.0
// Stands in for this folder's .cu files in a build without CUDA, where nothing gets here.
#include "smp_runtime/sharding/flatten_kernel.h"

namespace smp::sharding {

void launch_flatten(cuda::NumberType, cuda::NumberType, const std::vector<FlatPiece>&,
                    cuda::Stream) {
  cuda::refuse_launch("launch_flatten");
}

}  // namespace smp::sharding
