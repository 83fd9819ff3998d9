// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/cuda/block_lanes.h"
#include "smp_runtime/cuda/launch.h"
#include "smp_runtime/optimizer/squares_kernel.h"

namespace smp::optimizer {
namespace {

template <typename T>
__global__ void squares(const __grid_constant__ SquaredTable table, double* sums) {
  squares_block<T>(cuda::BlockLanes(), table, blockIdx.x, sums);
}

constexpr int kThreads = 256;

}  // namespace

void launch_squares(cuda::NumberType type, const std::vector<SquaredPiece>& pieces, double* sums,
                    cuda::Stream stream) {
  cuda::with_type(type, [&](auto number) {
    using T = decltype(number);
    cuda::in_tables(pieces, [&](const SquaredTable& table) {
      squares<T><<<static_cast<unsigned>(table.blocks()), kThreads, 0, stream>>>(table, sums);
      cuda::check_launch("squares");
      sums += table.blocks();
    });
  });
}

}  // namespace smp::optimizer
