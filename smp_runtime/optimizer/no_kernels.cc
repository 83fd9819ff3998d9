// SPDX-License-Identifier: Apache-2.0
// Stands in for this folder's .cu files in a build without CUDA, where nothing gets here.
#include "smp_runtime/optimizer/adam_kernel.h"
#include "smp_runtime/optimizer/squares_kernel.h"

namespace smp::optimizer {

void launch_adam(cuda::NumberType, const std::vector<AdamPiece>&, const AdamNumbers&,
                 cuda::Stream) {
  cuda::refuse_launch("launch_adam");
}
void launch_squares(cuda::NumberType, const std::vector<SquaredPiece>&, double*, cuda::Stream) {
  cuda::refuse_launch("launch_squares");
}

}  // namespace smp::optimizer
