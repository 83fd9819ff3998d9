// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace smp {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Split, SeparatorsStandBetweenParts) {
  EXPECT_THAT(split("a,,b,", ','), ElementsAre("a", "", "b", ""));
  EXPECT_THAT(split("", ','), ElementsAre(""));
}

TEST(Split, TerminatorsEndParts) {
  using std::string_view_literals::operator""sv;

  EXPECT_THAT(split_terminated("a\0\0b\0"sv, '\0'), ElementsAre("a", "", "b"));
  EXPECT_THAT(split_terminated("a\0b"sv, '\0'), ElementsAre("a", "b"));
  EXPECT_THAT(split_terminated("", '\0'), IsEmpty());
}

}  // namespace
}  // namespace smp
