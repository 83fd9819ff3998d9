// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/torch_free/unit_layout.h"

#include <algorithm>
#include <array>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace smp::sharding {
namespace {

using testing::ElementsAre;

TEST(UnitLayout, LaysTheParametersOfABlockEndToEnd) {
  const std::vector<ParameterSize> sizes{{5, 0, 0, 2}, {4, 1, 0, 2}, {2, 0, 0, 2}};

  const auto units = plan_units(sizes, {.alignment = 2, .persistent_unit = 1});

  ASSERT_EQ(units.size(), 2U);
  EXPECT_THAT(units[0].parameters, ElementsAre(PlacedParameter{0, 0, 5}, PlacedParameter{2, 5, 2}));
  EXPECT_EQ(units[0].padded, 8);
  EXPECT_EQ(units[0].shard, 4);
  EXPECT_EQ(units[1].block, 1);
}

TEST(UnitLayout, DividesAParameterByItselfIntoSharesOfOneLength) {
  EXPECT_EQ(even_share(8, 2, 1), (EvenShare{.start = 4, .elements = 4, .length = 4}));
  EXPECT_EQ(even_share(5, 4, 1), (EvenShare{.start = 2, .elements = 2, .length = 2}));
  EXPECT_EQ(even_share(5, 4, 2), (EvenShare{.start = 4, .elements = 1, .length = 2}));
  EXPECT_EQ(even_share(5, 4, 3), (EvenShare{.start = 5, .elements = 0, .length = 2}));
  EXPECT_EQ(even_share(0, 3, 1), (EvenShare{.start = 0, .elements = 0, .length = 0}));
  EXPECT_EQ(even_share(7, 1, 0), (EvenShare{.start = 0, .elements = 7, .length = 7}));
}

TEST(UnitLayout, KeepsKindsApart) {
  const std::vector<ParameterSize> sizes{{5, 0, 0}, {4, 0, 1}};

  EXPECT_EQ(plan_units(sizes, {.persistent_unit = 1}).size(), 2U);
}

TEST(UnitLayout, CutsEachKindForItsOwnRanks) {
  const std::vector<ParameterSize> sizes{{8, 0, 0, 2}, {8, 0, 1, 4}};

  const auto units = plan_units(sizes, {.persistent_unit = 1});

  ASSERT_EQ(units.size(), 2U);
  EXPECT_EQ(units[0].shard, 4);
  EXPECT_EQ(units[1].shard, 2);
}

TEST(UnitLayout, KeepsSmallParametersWholeInUnitsOfTheirOwn) {
  const std::vector<ParameterSize> sizes{{3, 0, 0, 2}, {100, 0, 0, 2}, {4, 1, 0, 2}, {5, 2, 0, 2}};

  const auto units = plan_units(sizes, {.persistence_threshold = 10, .persistent_unit = 8});

  ASSERT_EQ(units.size(), 3U);
  EXPECT_FALSE(units[0].persistent);
  EXPECT_TRUE(units[1].persistent);
  EXPECT_THAT(units[1].parameters, ElementsAre(PlacedParameter{0, 0, 3}, PlacedParameter{2, 3, 4}));
  EXPECT_THAT(units[2].parameters, ElementsAre(PlacedParameter{3, 0, 5}));
}

TEST(UnitLayout, CutsParametersAtShardBorders) {
  const std::vector<ParameterSize> sizes{{5, 0, 0, 2}, {4, 0, 0, 2}};
  const auto units = plan_units(sizes, {.alignment = 4, .persistent_unit = 1});

  EXPECT_THAT(pieces_of(units[0], 0), ElementsAre(Piece{0, 0, 5, 0}, Piece{1, 0, 3, 5}));
  EXPECT_THAT(pieces_of(units[0], 1), ElementsAre(Piece{1, 3, 1, 0}));
}

TEST(UnitLayout, PlacesWholeParametersWhereLeastIs) {
  const std::vector<ParameterSize> sizes{{3, 0, 0, 2}, {5, 0, 0, 2}, {4, 0, 0, 2}, {1, 0, 0, 2}};

  const auto units = plan_units(sizes, {.alignment = 4, .persistent_unit = 1, .cut = false});

  ASSERT_EQ(units.size(), 1U);
  EXPECT_EQ(units[0].shard, 8);
  EXPECT_THAT(units[0].parameters,
              ElementsAre(PlacedParameter{1, 0, 5}, PlacedParameter{3, 5, 1},
                          PlacedParameter{2, 8, 4}, PlacedParameter{0, 12, 3}));
  EXPECT_THAT(pieces_of(units[0], 1), ElementsAre(Piece{2, 0, 4, 0}, Piece{0, 0, 3, 4}));
}

TEST(UnitLayout, WholeParametersAreWholeAndBalanced) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    const int degree = 1 + static_cast<int>(random() % 5);
    std::vector<ParameterSize> sizes(1 + random() % 20);
    std::int64_t total = 0;
    std::int64_t largest = 0;
    for (ParameterSize& size : sizes) {
      size = {static_cast<std::int64_t>(random() % 1000), 0, 0, degree};
      total += size.elements;
      largest = std::max(largest, size.elements);
    }

    const auto units = plan_units(sizes, {.persistent_unit = 1, .cut = false});

    std::int64_t placed = 0;
    for (int rank = 0; rank < degree; ++rank) {
      for (const Piece& piece : pieces_of(units.at(0), rank)) {
        EXPECT_EQ(piece.elements, sizes[static_cast<std::size_t>(piece.parameter)].elements);
        placed += piece.elements;
      }
    }
    EXPECT_EQ(placed, total);
    // Graham's bound on greedy placement.
    EXPECT_LE(units[0].shard, std::max<std::int64_t>(1, total / degree + largest));
  }
}

TEST(UnitLayout, EmptyParametersHaveAPlace) {
  const std::vector<ParameterSize> sizes{{0, 0, 0, 3}};

  const auto units = plan_units(sizes, {.persistent_unit = 1});

  ASSERT_EQ(units.size(), 1U);
  EXPECT_EQ(units[0].padded, 3);
  EXPECT_TRUE(pieces_of(units[0], 0).empty());
}

TEST(UnitLayout, PiecesOfAllRanksAreTheWholeOnce) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<ParameterSize> sizes(1 + random() % 12);
    const std::array degrees{1 + static_cast<int>(random() % 5),
                             1 + static_cast<int>(random() % 5)};
    std::int64_t total = 0;
    for (ParameterSize& size : sizes) {
      const std::size_t kind = random() % 2;
      size = {.elements = static_cast<std::int64_t>(random() % 300),
              .block = static_cast<int>(random() % 3),
              .kind = static_cast<int>(kind),
              .degree = degrees[kind]};
      total += size.elements;
    }
    const PlanOptions options{.alignment = 1 + static_cast<std::int64_t>(random() % 64),
                              .persistence_threshold = static_cast<std::int64_t>(random() % 200),
                              .persistent_unit = 1 + static_cast<std::int64_t>(random() % 400)};

    const auto units = plan_units(sizes, options);

    std::vector<std::vector<bool>> seen(sizes.size());
    for (std::size_t index = 0; index < sizes.size(); ++index) {
      seen[index].resize(static_cast<std::size_t>(sizes[index].elements));
    }
    for (const UnitLayout& unit : units) {
      EXPECT_EQ(unit.shard % options.alignment, 0);
      EXPECT_EQ(unit.padded, unit.shard * unit.degree);
      EXPECT_EQ(unit.degree, degrees[static_cast<std::size_t>(unit.kind)]);
      for (int rank = 0; rank < unit.degree; ++rank) {
        for (const Piece& piece : pieces_of(unit, rank)) {
          EXPECT_LE(piece.offset + piece.elements, unit.shard);
          for (std::int64_t element = 0; element < piece.elements; ++element) {
            auto flag = seen[static_cast<std::size_t>(piece.parameter)]
                            [static_cast<std::size_t>(piece.start + element)];
            EXPECT_FALSE(flag);
            flag = true;
            --total;
          }
        }
      }
    }
    EXPECT_EQ(total, 0);
  }
}

}  // namespace
}  // namespace smp::sharding
