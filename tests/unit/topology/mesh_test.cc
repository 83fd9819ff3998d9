// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/topology/mesh.h"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"

namespace smp::topology {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ranks = std::vector<int>;

Mesh a_mesh(int world_size, int pp_size, int tp_size, std::string_view placement) {
  ParallelConfig config;
  config.pipeline_parallel_degree = pp_size;
  config.tensor_parallel_degree = tp_size;
  config.placement_strategy = placement;
  return Mesh::make(config, world_size);
}

std::vector<Coordinates> all_coordinates(const Mesh& mesh) {
  std::vector<Coordinates> all;
  for (int rank = 0; rank < mesh.size(); ++rank) all.push_back(mesh.coordinates(rank));
  return all;
}

/// All groups of a kind, by their lowest rank.
std::set<Ranks> all_groups(const Mesh& mesh, Group kind) {
  std::set<Ranks> all;
  for (int rank = 0; rank < mesh.size(); ++rank) all.insert(mesh.group(kind, rank));
  return all;
}

Coordinates at(int rdp, int pp, int tp) { return {.rdp = rdp, .pp = pp, .tp = tp}; }

// The two tables of the published documentation ("Placement Strategy with Tensor Parallelism").
TEST(Mesh, DptPutsTensorParallelNeighboursNextToEachOther) {
  EXPECT_THAT(all_coordinates(a_mesh(8, 2, 2, "DPT")),
              ElementsAre(at(0, 0, 0), at(0, 0, 1), at(0, 1, 0), at(0, 1, 1), at(1, 0, 0),
                          at(1, 0, 1), at(1, 1, 0), at(1, 1, 1)));
}

TEST(Mesh, PtdPutsDataParallelNeighboursNextToEachOther) {
  EXPECT_THAT(all_coordinates(a_mesh(8, 2, 2, "PTD")),
              ElementsAre(at(0, 0, 0), at(1, 0, 0), at(0, 0, 1), at(1, 0, 1), at(0, 1, 0),
                          at(1, 1, 0), at(0, 1, 1), at(1, 1, 1)));
}

// "Placement Strategy": eight ranks in two partitions.
TEST(Mesh, SpreadPutsTheRanksOfAModelFarApart) {
  const Mesh mesh = a_mesh(8, 2, 1, "spread");

  EXPECT_THAT(all_groups(mesh, Group::kMp),
              ElementsAre(Ranks{0, 4}, Ranks{1, 5}, Ranks{2, 6}, Ranks{3, 7}));
  EXPECT_THAT(all_groups(mesh, Group::kDp), ElementsAre(Ranks{0, 1, 2, 3}, Ranks{4, 5, 6, 7}));
  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(mesh.rank_in(Group::kMp, rank), rank / 4);
  EXPECT_EQ(mesh.rank_in(Group::kDp, 6), 2);
}

TEST(Mesh, ClusterPutsTheRanksOfAModelTogether) {
  const Mesh mesh = a_mesh(8, 2, 1, "cluster");

  EXPECT_THAT(all_groups(mesh, Group::kMp),
              ElementsAre(Ranks{0, 1}, Ranks{2, 3}, Ranks{4, 5}, Ranks{6, 7}));
  EXPECT_THAT(all_groups(mesh, Group::kDp), ElementsAre(Ranks{0, 2, 4, 6}, Ranks{1, 3, 5, 7}));
}

// The developer guide's worked example, whose layout is DTP.
TEST(Mesh, DtpGivesTheRanksOfTheDeveloperGuide) {
  const Mesh mesh = a_mesh(8, 2, 2, "DTP");

  Ranks dp;
  Ranks mp;
  for (int rank = 0; rank < 8; ++rank) {
    dp.push_back(mesh.rank_in(Group::kDp, rank));
    mp.push_back(mesh.rank_in(Group::kMp, rank));
  }
  EXPECT_THAT(dp, ElementsAre(0, 0, 1, 1, 2, 2, 3, 3));
  EXPECT_THAT(mp, ElementsAre(0, 1, 2, 3, 0, 1, 2, 3));
}

TEST(Mesh, NamesAreOrdersOfLetters) {
  EXPECT_EQ(all_coordinates(a_mesh(8, 2, 2, "cluster")), all_coordinates(a_mesh(8, 2, 2, "DPT")));
  EXPECT_EQ(all_coordinates(a_mesh(8, 2, 2, "spread")), all_coordinates(a_mesh(8, 2, 2, "TPD")));
}

struct Shape {
  std::string placement;
  int rdp, pp, tp;
};

std::vector<Shape> all_shapes() {
  std::vector<Shape> shapes;
  std::string letters = "DPT";
  do {
    for (int rdp : {1, 2, 3, 4}) {
      for (int pp : {1, 2, 3, 5}) {
        for (int tp : {1, 2, 4}) shapes.push_back({letters, rdp, pp, tp});
      }
    }
  } while (std::next_permutation(letters.begin(), letters.end()));
  return shapes;
}

Mesh a_mesh(const Shape& shape) {
  return a_mesh(shape.rdp * shape.pp * shape.tp, shape.pp, shape.tp, shape.placement);
}

class MeshOfAnyShape : public testing::TestWithParam<Shape> {};

TEST_P(MeshOfAnyShape, SizesObeyTheIdentities) {
  const Mesh mesh = a_mesh(GetParam());
  const int world = mesh.size(Group::kWorld);

  EXPECT_EQ(world, mesh.size());
  EXPECT_EQ(mesh.size(Group::kMp) * mesh.size(Group::kRdp), world);
  EXPECT_EQ(mesh.size(Group::kPp) * mesh.size(Group::kDp), world);
  EXPECT_EQ(mesh.size(Group::kPp) * mesh.size(Group::kTp) * mesh.size(Group::kRdp), world);
  EXPECT_EQ(mesh.size(Group::kMp) * mesh.size(Group::kDp) == world, GetParam().tp == 1);
}

TEST_P(MeshOfAnyShape, TheRightMostLetterVariesFastest) {
  const Shape& shape = GetParam();
  const Mesh mesh = a_mesh(shape);

  for (int rank = 0; rank < mesh.size(); ++rank) {
    const Coordinates at = mesh.coordinates(rank);
    int composed = 0;
    for (const char letter : shape.placement) {
      const int size = letter == 'D' ? shape.rdp : letter == 'P' ? shape.pp : shape.tp;
      const int index = letter == 'D' ? at.rdp : letter == 'P' ? at.pp : at.tp;
      composed = composed * size + index;
    }
    EXPECT_EQ(composed, rank);
  }
}

TEST_P(MeshOfAnyShape, GroupsOfAKindHoldEveryRankOnce) {
  const Mesh mesh = a_mesh(GetParam());

  for (const Group kind : kGroups) {
    std::set<int> seen;
    for (const Ranks& group : all_groups(mesh, kind)) {
      EXPECT_EQ(static_cast<int>(group.size()), mesh.size(kind));
      EXPECT_TRUE(std::is_sorted(group.begin(), group.end()));
      for (size_t i = 0; i < group.size(); ++i) {
        EXPECT_TRUE(seen.insert(group[i]).second);
        EXPECT_EQ(mesh.group(kind, group[i]), group);
        EXPECT_EQ(mesh.rank_in(kind, group[i]), static_cast<int>(i));
      }
    }
    EXPECT_EQ(static_cast<int>(seen.size()), mesh.size());
  }
}

TEST_P(MeshOfAnyShape, GroupRanksOfOneAxisAreCoordinates) {
  const Mesh mesh = a_mesh(GetParam());

  for (int rank = 0; rank < mesh.size(); ++rank) {
    const Coordinates at = mesh.coordinates(rank);
    EXPECT_EQ(mesh.rank_in(Group::kPp, rank), at.pp);
    EXPECT_EQ(mesh.rank_in(Group::kTp, rank), at.tp);
    EXPECT_EQ(mesh.rank_in(Group::kRdp, rank), at.rdp);
  }
}

TEST_P(MeshOfAnyShape, DataParallelIsTensorTimesReducedDataParallel) {
  const Mesh mesh = a_mesh(GetParam());

  for (int rank = 0; rank < mesh.size(); ++rank) {
    std::set<int> spanned;
    for (const int peer : mesh.group(Group::kTp, rank)) {
      for (const int other : mesh.group(Group::kRdp, peer)) spanned.insert(other);
    }
    const Ranks dp = mesh.group(Group::kDp, rank);
    EXPECT_EQ(Ranks(spanned.begin(), spanned.end()), dp);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, MeshOfAnyShape, testing::ValuesIn(all_shapes()),
                         [](const auto& shape) {
                           return fmt::format("{}_{}x{}x{}", shape.param.placement, shape.param.rdp,
                                              shape.param.pp, shape.param.tp);
                         });

TEST(Mesh, RefusesWhatDoesNotDivideOrIsNoOrder) {
  EXPECT_THROW(a_mesh(6, 4, 1, "cluster"), ConfigError);
  EXPECT_THROW(a_mesh(8, 0, 1, "cluster"), ConfigError);
  EXPECT_THROW(a_mesh(0, 1, 1, "cluster"), ConfigError);
  for (const char* placement : {"", "DP", "DPTT", "DDP", "dpt", "clusters"}) {
    EXPECT_THROW(a_mesh(8, 2, 2, placement), ConfigError) << placement;
  }
}

TEST(Mesh, RefusesRanksOutside) {
  const Mesh mesh = a_mesh(4, 2, 1, "cluster");

  EXPECT_FALSE(mesh.contains(4));
  EXPECT_FALSE(mesh.contains(-1));
  EXPECT_THROW(static_cast<void>(mesh.coordinates(4)), InternalError);
}

}  // namespace
}  // namespace smp::topology
