// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/cuda/block_lanes.h"
#include "smp_runtime/cuda/launch.h"
#include "smp_runtime/optimizer/adam_kernel.h"

namespace smp::optimizer {
namespace {

template <typename T>
__global__ void adam(const __grid_constant__ AdamTable table,
                     const __grid_constant__ AdamNumbers numbers) {
  adam_block<T>(cuda::BlockLanes(), table, blockIdx.x, numbers);
}

constexpr int kThreads = 256;

}  // namespace

void launch_adam(cuda::NumberType type, const std::vector<AdamPiece>& pieces,
                 const AdamNumbers& numbers, cuda::Stream stream) {
  cuda::with_type(type, [&](auto number) {
    using T = decltype(number);
    cuda::in_tables(pieces, [&](const AdamTable& table) {
      adam<T><<<static_cast<unsigned>(table.blocks()), kThreads, 0, stream>>>(table, numbers);
      cuda::check_launch("adam");
    });
  });
}

}  // namespace smp::optimizer
