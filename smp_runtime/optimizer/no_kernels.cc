// SPDX-License-Identifier: Apache-2.0
// Stands in for this folder's .cu files in a build without CUDA, where nothing gets here.
#include "smp_runtime/optimizer/adam_kernel.h"
#include "smp_runtime/optimizer/scaling_kernel.h"

namespace smp::optimizer {

void launch_adam(cuda::NumberType, const std::vector<AdamPiece>&, const AdamNumbers&,
                 cuda::Stream) {
  cuda::refuse_launch("launch_adam");
}
void launch_scale(cuda::NumberType, const std::vector<ScaledPiece>&, double, double*,
                  cuda::Stream) {
  cuda::refuse_launch("launch_scale");
}

}  // namespace smp::optimizer
