// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/number.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace smp {
namespace {

using testing::Optional;

TEST(Number, IsTheWholeText) {
  EXPECT_THAT(parse_number<int>("-12"), Optional(-12));
  EXPECT_THAT(parse_number<double>("1.5e3"), Optional(1500.0));
  for (const char* other : {"", "+1", " 1", "1 ", "1x", "99999999999"}) {
    EXPECT_EQ(parse_number<int>(other), std::nullopt) << other;
  }
}

TEST(Number, OrWhatTheTextBeginsWith) {
  EXPECT_THAT(leading_number<int>("12.4"), Optional(12));
  EXPECT_EQ(leading_number<int>("v12"), std::nullopt);
}

}  // namespace
}  // namespace smp
