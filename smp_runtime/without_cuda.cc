// SPDX-License-Identifier: Apache-2.0
// Stands in for all .cu files, cuda/launch.cc and nccl_library.cc in a build without CUDA. What
// calls them is compiled always: it asks for NCCL's version before NCCL, and never gets to a
// kernel.
#include "smp_runtime/core/error.h"
#include "smp_runtime/cuda/launch.h"
#include "smp_runtime/optimizer/adam_kernel.h"
#include "smp_runtime/optimizer/squares_kernel.h"
#include "smp_runtime/sharding/flatten_kernel.h"
#include "smp_runtime/tensor_parallel/fused_blocks_kernels.h"
#include "smp_runtime/tensor_parallel/row_kernels.h"
#include "smp_runtime/transport/nccl/nccl_library.h"

namespace smp {
namespace {

[[noreturn]] void refuse(const char* function) {
  throw InternalError("{} was called in a build without GPU code; please report it", function);
}

}  // namespace

namespace cuda {

Stream current_stream(const at::Tensor&) { refuse("current_stream"); }
void check_launch(const char* kernel) { refuse(kernel); }

}  // namespace cuda

namespace optimizer {

void launch_adam(cuda::NumberType, const std::vector<AdamPiece>&, const AdamNumbers&,
                 cuda::Stream) {
  refuse("launch_adam");
}
void launch_squares(cuda::NumberType, const std::vector<SquaredPiece>&, double*, cuda::Stream) {
  refuse("launch_squares");
}

}  // namespace optimizer

namespace sharding {

void launch_flatten(cuda::NumberType, cuda::NumberType, const std::vector<FlatPiece>&,
                    cuda::Stream) {
  refuse("launch_flatten");
}

}  // namespace sharding

namespace tensor_parallel {

void launch_softmax(cuda::NumberType, const SoftmaxShape&, const void*, const void*, void*,
                    cuda::Stream) {
  refuse("launch_softmax");
}
void launch_bias_gelu(cuda::NumberType, GeluKind, std::int64_t, std::int64_t, const void*,
                      const void*, void*, cuda::Stream) {
  refuse("launch_bias_gelu");
}
void launch_bias_gelu_slopes(cuda::NumberType, GeluKind, std::int64_t, std::int64_t, std::int64_t,
                             const void*, const void*, const void*, void*, void*, cuda::Stream) {
  refuse("launch_bias_gelu_slopes");
}
void launch_moments(cuda::NumberType, std::int64_t, std::int64_t, const void*, void*,
                    cuda::Stream) {
  refuse("launch_moments");
}
void launch_normalise(cuda::NumberType, const AnyNormalRows&, const void*, void*, cuda::Stream) {
  refuse("launch_normalise");
}
void launch_slope_sums(cuda::NumberType, const AnyNormalRows&, const void*, void*, cuda::Stream) {
  refuse("launch_slope_sums");
}
void launch_slopes(cuda::NumberType, const AnyNormalRows&, std::int64_t, const void*, const void*,
                   void*, void*, cuda::Stream) {
  refuse("launch_slopes");
}
void launch_loss_parts(cuda::NumberType, std::int64_t, std::int64_t, const void*,
                       const std::int64_t*, const bool*, void*, cuda::Stream) {
  refuse("launch_loss_parts");
}
void launch_loss_slopes(cuda::NumberType, std::int64_t, std::int64_t, const void*,
                        const std::int64_t*, const bool*, const void*, const void*, void*,
                        cuda::Stream) {
  refuse("launch_loss_slopes");
}

}  // namespace tensor_parallel

namespace transport {

std::unique_ptr<NcclLibrary> nccl_library(int) { return nullptr; }

int nccl_version() { return 0; }

std::string gpu_identity(int) {
  throw InternalError("a GPU was asked for its name in a build without GPU code; please report it");
}

}  // namespace transport
}  // namespace smp
