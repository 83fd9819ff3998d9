// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/nccl/nccl_pairs.h"

#include <algorithm>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/transport/nccl/nccl_advice.h"

namespace smp::transport {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

GpuInfo gpu_info(const std::string& host, const std::string& gpu, int library = 22809) {
  return {.host = host, .gpu = gpu, .library = library};
}

TEST(NcclPairs, EachDirectionHasItsOwn) {
  const std::vector<GpuInfo> infos{gpu_info("a", "0"), gpu_info("a", "1"), gpu_info("b", "0")};

  EXPECT_THAT(nccl_directions(infos),
              ElementsAre(Direction{0, 1}, Direction{1, 0}, Direction{0, 2}, Direction{2, 0},
                          Direction{1, 2}, Direction{2, 1}));
}

TEST(NcclPairs, RanksWithoutAGpuAndThoseThatShareOneHaveNone) {
  const std::vector<GpuInfo> infos{gpu_info("a", "0"), gpu_info("a", "0"), gpu_info("a", ""),
                                   gpu_info("a", "1")};

  EXPECT_THAT(nccl_directions(infos),
              ElementsAre(Direction{0, 3}, Direction{3, 0}, Direction{1, 3}, Direction{3, 1}));
  EXPECT_THAT(why_not_nccl(infos[0], infos[1]), HasSubstr("share the GPU 0"));
  EXPECT_THAT(why_not_nccl(infos[0], infos[2]), IsEmpty()) << "nothing of it is on a GPU";
}

TEST(NcclPairs, RanksOfDifferentHostsShareNoGpu) {
  EXPECT_FALSE(share_gpu(gpu_info("a", "0"), gpu_info("b", "0")));
  EXPECT_TRUE(share_gpu(gpu_info("a", "0"), gpu_info("a", "0")));
  EXPECT_FALSE(share_gpu(gpu_info("a", ""), gpu_info("a", ""))) << "they have none";
}

TEST(NcclAdvice, IsOfWhatNcclSays) {
  EXPECT_THAT(std::string(nccl_advice("Duplicate GPU detected : rank 1 and rank 0 both on 40000")),
              HasSubstr("torch.cuda.set_device"));
  EXPECT_THAT(std::string(nccl_advice("unhandled system error")), HasSubstr("--shm-size"));
  EXPECT_THAT(std::string(nccl_advice("remote process exited")), IsEmpty());
}

TEST(NcclPairs, OneVersionIsNeeded) {
  EXPECT_THAT(why_not_nccl(gpu_info("a", "0"), gpu_info("a", "1", 0)), HasSubstr("SMP_WITH_CUDA"));
  EXPECT_THAT(why_not_nccl(gpu_info("a", "0"), gpu_info("b", "0", 22703)),
              HasSubstr("22809 and 22703"));
  EXPECT_THAT(nccl_directions(std::vector{gpu_info("a", "0"), gpu_info("a", "1", 0)}), IsEmpty());
}

/// Ranks make their next communicator only when both ends have come to it.
TEST(NcclPairs, TheOrderLetsNobodyWaitInACircle) {
  for (int size = 2; size <= 7; ++size) {
    std::vector<GpuInfo> infos;
    // Every third shares its GPU with the one before.
    for (int rank = 0; rank < size; ++rank) {
      infos.push_back(gpu_info("a", std::to_string(rank % 3 == 2 ? rank - 1 : rank)));
    }
    std::vector<std::vector<Direction>> left(infos.size());
    const std::vector<Direction> directions = nccl_directions(infos);
    for (const Direction& way : directions) {
      left[way.from].push_back(way);
      left[way.to].push_back(way);
    }

    size_t made = 0;
    for (bool moved = true; std::exchange(moved, false);) {
      for (const Direction& way : directions) {
        auto& one = left[way.from];
        auto& other = left[way.to];
        if (one.empty() || other.empty() || one.front() != way || other.front() != way) continue;
        one.erase(one.begin());
        other.erase(other.begin());
        ++made;
        moved = true;
      }
    }

    EXPECT_EQ(made, directions.size()) << size << " ranks";
  }
}

}  // namespace
}  // namespace smp::transport
