// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/cuda/block_lanes.h"
#include "smp_runtime/cuda/device_numbers.h"
#include "smp_runtime/optimizer/scaling_kernel.h"

namespace smp::optimizer {
namespace {

template <typename T>
__global__ void scale(const __grid_constant__ ScaledTable table, double factor, double* sums) {
  scale_block<T>(cuda::BlockLanes(), table, blockIdx.x, factor, sums);
}

constexpr int kThreads = 256;

}  // namespace

void launch_scale(cuda::NumberType type, const std::vector<ScaledPiece>& pieces, double factor,
                  double* sums, cuda::Stream stream) {
  cuda::with_type(type, [&](auto number) {
    using T = decltype(number);
    cuda::in_tables(pieces, [&](const ScaledTable& table) {
      scale<T><<<static_cast<unsigned>(table.blocks()), kThreads, 0, stream>>>(table, factor, sums);
      cuda::check_launch("scale");
      sums += table.blocks();
    });
  });
}

}  // namespace smp::optimizer
