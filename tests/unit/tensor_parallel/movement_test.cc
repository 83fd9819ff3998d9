// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/tensor_parallel/movement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"

namespace smp::tensor_parallel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<std::int64_t> moved(const Movement& movement, std::vector<std::int64_t> sizes) {
  return moved_sizes(movement, sizes, 4, "the batch");
}

TEST(Movement, ShapesFollowFromTheNumberOfRanks) {
  EXPECT_THAT(moved({.kind = MovementKind::kStay}, {3, 5}), ElementsAre(3, 5));
  EXPECT_THAT(moved({.kind = MovementKind::kAllReduce}, {3, 5}), ElementsAre(3, 5));
  EXPECT_THAT(moved({.kind = MovementKind::kGather, .dim = -1}, {3, 5}), ElementsAre(3, 20));
  EXPECT_THAT(moved({.kind = MovementKind::kSlice, .dim = 1}, {3, 8}), ElementsAre(3, 2));
  EXPECT_THAT(moved({.kind = MovementKind::kReduceScatter, .dim = 0}, {8, 3}), ElementsAre(2, 3));
  EXPECT_THAT(moved({.kind = MovementKind::kExchange, .dim = -1, .join = 0}, {2, 7, 8}),
              ElementsAre(8, 7, 2));
}

TEST(Movement, ThereAndBackGivesTheShapeItBeganWith) {
  const Movement there{.kind = MovementKind::kExchange, .dim = -1, .join = 0};
  const Movement back{.kind = MovementKind::kExchange, .dim = 0, .join = -1};

  EXPECT_THAT(moved(back, moved(there, {2, 7, 8})), ElementsAre(2, 7, 8));
}

TEST(Movement, ShapesThatDoNotDivideAreNamed) {
  EXPECT_THAT(
      [] {
        moved({.kind = MovementKind::kSlice, .dim = -1}, {3, 6});
      },
      ThrowsMessage<ConfigError>(
          HasSubstr("the batch has shape [3, 6]: its dim 1 of 6 does not divide by the 4 ranks")));
  EXPECT_THAT(
      [] {
        moved({.kind = MovementKind::kGather, .dim = 2}, {3, 6});
      },
      ThrowsMessage<ConfigError>(HasSubstr("which has no dim 2")));
}

TEST(Movement, BytesAreThoseOfARing) {
  EXPECT_EQ(bytes_sent({.kind = MovementKind::kSlice}, 800, 4), 0);
  EXPECT_EQ(bytes_sent({.kind = MovementKind::kGather}, 200, 4), 600);
  EXPECT_EQ(bytes_sent({.kind = MovementKind::kReduceScatter}, 800, 4), 600);
  EXPECT_EQ(bytes_sent({.kind = MovementKind::kExchange}, 800, 4), 600);
  EXPECT_EQ(bytes_sent({.kind = MovementKind::kAllReduce}, 800, 4), 1200);
}

}  // namespace
}  // namespace smp::tensor_parallel
