// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/cuda/block_lanes.h"
#include "smp_runtime/cuda/launch.h"
#include "smp_runtime/sharding/flatten_kernel.h"

namespace smp::sharding {
namespace {

template <typename Target, typename Source>
__global__ void flatten(const __grid_constant__ FlatTable table) {
  flatten_block<Target, Source>(cuda::BlockLanes(), table, blockIdx.x);
}

constexpr int kThreads = 256;

template <typename Target, typename Source>
void launch(const std::vector<FlatPiece>& pieces, cuda::Stream stream) {
  cuda::in_tables(pieces, [&](const FlatTable& table) {
    flatten<Target, Source><<<static_cast<unsigned>(table.blocks()), kThreads, 0, stream>>>(table);
    cuda::check_launch("flatten");
  });
}

}  // namespace

void launch_flatten(cuda::NumberType target, cuda::NumberType source,
                    const std::vector<FlatPiece>& pieces, cuda::Stream stream) {
  cuda::with_type(source, [&](auto number) {
    using Source = decltype(number);
    if (target == cuda::NumberType::kFloat && sizeof(Source) == 2) {
      launch<float, Source>(pieces, stream);
    } else {
      launch<Source, Source>(pieces, stream);
    }
  });
}

}  // namespace smp::sharding
