// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/topology/ranker.h"

#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/refusal.h"

namespace smp::topology {
namespace {

using testing::HasSubstr;
using testing::Optional;
using Groups = Ranker::Groups;

TEST(Ranker, TensorRanksAreNeighboursAndReplicasAreOutermost) {
  const Ranker ranker(8, 2, 2);

  EXPECT_EQ(ranker.tensor_groups(), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(ranker.shard_groups(), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(ranker.replica_groups(), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(ranker.blocks(), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(ranker.coordinates(6), (ShardCoordinates{.tensor = 0, .shard = 1, .replica = 1}));
}

// A rank's coordinates are its places in the groups, whatever the degrees.
TEST(Ranker, EveryRankIsInOneGroupOfEachKindAtItsCoordinates) {
  for (const int world : {1, 2, 4, 8, 12, 16}) {
    std::vector<int> all(static_cast<std::size_t>(world));
    std::iota(all.begin(), all.end(), 0);
    for (int tensor = 1; tensor <= world; ++tensor) {
      for (int shard = 1; shard <= world; ++shard) {
        if (world % (tensor * shard) != 0) continue;
        const Ranker ranker(world, shard, tensor);
        const auto check = [&](const Groups& groups, int ShardCoordinates::*place) {
          std::vector<int> seen;
          for (const auto& group : groups) {
            for (std::size_t at = 0; at < group.size(); ++at) {
              EXPECT_EQ(ranker.coordinates(group[at]).*place, static_cast<int>(at));
            }
            seen.insert(seen.end(), group.begin(), group.end());
          }
          std::ranges::sort(seen);
          EXPECT_EQ(seen, all);
        };
        check(ranker.tensor_groups(), &ShardCoordinates::tensor);
        check(ranker.shard_groups(), &ShardCoordinates::shard);
        check(ranker.replica_groups(), &ShardCoordinates::replica);
      }
    }
  }
}

TEST(Ranker, DegreesThatDoNotDivideAreRefused) {
  EXPECT_THAT(refusal([] { Ranker(8, 3, 1); }), HasSubstr("8 ranks with tensor_parallel_degree 1"));
  EXPECT_THAT(refusal([] { Ranker(1, 0, 4); }), HasSubstr("and shards of 0"));
  EXPECT_THAT(refusal([] { (void)Ranker(2, 1, 1).coordinates(2); }), HasSubstr("rank 2 is not in"));
}

TEST(Ranker, HybridShardsWithoutAKeyAreEightOrTheLargestDegreeThatDivides) {
  EXPECT_EQ(native_hybrid_degree(16), 8);
  EXPECT_EQ(native_hybrid_degree(4), 4);
  EXPECT_EQ(native_hybrid_degree(12), 6);
  EXPECT_EQ(native_hybrid_degree(1), 1);
}

std::vector<std::string> in_turn(int hosts, int per_host) {
  std::vector<std::string> names;
  for (int rank = 0; rank < hosts * per_host; ++rank) {
    names.push_back("host" + std::to_string(rank / per_host));
  }
  return names;
}

TEST(PlacementWarning, NothingIsSaidOfGroupsInAHostOrLargerThanOne) {
  EXPECT_EQ(placement_warning(Ranker(16, 8, 1), in_turn(2, 8)), std::nullopt);
  EXPECT_EQ(placement_warning(Ranker(16, 4, 2), in_turn(2, 8)), std::nullopt);
  EXPECT_EQ(placement_warning(Ranker(16, 16, 1), in_turn(2, 8)), std::nullopt);
  EXPECT_EQ(placement_warning(Ranker(16, 4, 4), in_turn(2, 8)), std::nullopt);  // a copy is larger
}

TEST(PlacementWarning, ACopyOverHostsThatFitsOneIsNamed) {
  EXPECT_THAT(placement_warning(Ranker(12, 4, 1), in_turn(2, 6)),
              Optional(std::string(
                  "a copy of the model is sharded over several hosts, though each has room for it "
                  "whole: ranks 4 on host0, 5 on host0, 6 on host1, 7 on host1; "
                  "hybrid_shard_degree, 4, does not divide the 6 ranks of a host; choose degrees "
                  "that do")));
  const std::vector<std::string> by_turns{"a", "b", "a", "b"};
  EXPECT_THAT(placement_warning(Ranker(4, 2, 1), by_turns),
              Optional(HasSubstr("ranks 0 on a, 1 on b; give the ranks of a host consecutive")));
}

TEST(PlacementWarning, ATensorParallelGroupIsNamedBeforeTheCopyThatItIsIn) {
  EXPECT_THAT(
      placement_warning(Ranker(12, 3, 4), in_turn(2, 6)),
      Optional(HasSubstr("a tensor-parallel group is spread over several hosts, though each "
                         "has room for it whole: ranks 4 on host0, 5 on host0, 6 on host1, "
                         "7 on host1; tensor_parallel_degree, 4, does not divide")));
}

}  // namespace
}  // namespace smp::topology
