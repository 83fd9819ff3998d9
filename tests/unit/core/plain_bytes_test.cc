// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/plain_bytes.h"

#include <cstdint>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace smp {
namespace {

struct Pair {
  std::int64_t number = 0;
  char letter = 'a';

  bool operator==(const Pair&) const = default;
};

TEST(PlainBytes, ValuesComeBackInTheirOrder) {
  std::string bytes;
  append_plain(bytes, Pair{.number = 7, .letter = 'x'});
  append_plain_values<std::int32_t>(bytes, std::vector<std::int32_t>{1, 2, 3});
  append_plain_values<Pair>(bytes, {});
  bytes += "rest";

  std::string_view left = bytes;

  EXPECT_EQ(take_plain<Pair>(left), (Pair{.number = 7, .letter = 'x'}));
  EXPECT_THAT(take_plain_values<std::int32_t>(left, 3), testing::ElementsAre(1, 2, 3));
  EXPECT_THAT(take_plain_values<Pair>(left, 0), testing::IsEmpty());
  EXPECT_EQ(left, "rest");
}

TEST(PlainBytes, RefusesMoreThanThereIs) {
  std::string_view left = "1234567";

  EXPECT_THROW(static_cast<void>(take_plain<std::int64_t>(left)), InternalError);
  EXPECT_THROW(static_cast<void>(take_plain_values<std::int32_t>(left, 2)), InternalError);
  const std::size_t most = std::numeric_limits<std::size_t>::max();
  EXPECT_THROW(static_cast<void>(take_plain_values<std::int64_t>(left, most)), InternalError);
  EXPECT_EQ(left, "1234567");
}

}  // namespace
}  // namespace smp
