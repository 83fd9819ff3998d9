// SPDX-License-Identifier: Apache-2.0
// Stands in for this folder's .cu files in a build without CUDA, where nothing gets here.
#include "smp_runtime/tensor_parallel/fused_blocks_kernels.h"
#include "smp_runtime/tensor_parallel/row_kernels.h"

namespace smp::tensor_parallel {

void launch_softmax(cuda::NumberType, const SoftmaxShape&, const void*, const void*, void*,
                    cuda::Stream) {
  cuda::refuse_launch("launch_softmax");
}
void launch_bias_gelu(cuda::NumberType, GeluKind, std::int64_t, std::int64_t, const void*,
                      const void*, void*, cuda::Stream) {
  cuda::refuse_launch("launch_bias_gelu");
}
void launch_bias_gelu_slopes(cuda::NumberType, GeluKind, std::int64_t, std::int64_t, std::int64_t,
                             const void*, const void*, const void*, void*, void*, cuda::Stream) {
  cuda::refuse_launch("launch_bias_gelu_slopes");
}
void launch_moments(cuda::NumberType, std::int64_t, std::int64_t, const void*, void*,
                    cuda::Stream) {
  cuda::refuse_launch("launch_moments");
}
void launch_normalise(cuda::NumberType, const AnyNormalRows&, const void*, void*, cuda::Stream) {
  cuda::refuse_launch("launch_normalise");
}
void launch_slope_sums(cuda::NumberType, const AnyNormalRows&, const void*, void*, cuda::Stream) {
  cuda::refuse_launch("launch_slope_sums");
}
void launch_slopes(cuda::NumberType, const AnyNormalRows&, std::int64_t, const void*, const void*,
                   void*, void*, cuda::Stream) {
  cuda::refuse_launch("launch_slopes");
}
void launch_loss_parts(cuda::NumberType, std::int64_t, std::int64_t, const void*,
                       const std::int64_t*, const bool*, void*, cuda::Stream) {
  cuda::refuse_launch("launch_loss_parts");
}
void launch_loss_slopes(cuda::NumberType, std::int64_t, std::int64_t, const void*,
                        const std::int64_t*, const bool*, const void*, const void*, void*,
                        cuda::Stream) {
  cuda::refuse_launch("launch_loss_slopes");
}

}  // namespace smp::tensor_parallel
