// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/advice.h"

#include <gtest/gtest.h>

namespace smp {
namespace {

TEST(Advice, StandsBehindTheFactsInTheWordsOfTheFace) {
  EXPECT_EQ(advised("this failed", Advice::kLostWrite), "this failed");

  set_advice_words(
      [](Advice advice) { return advice == Advice::kLostWrite ? "; load a state instead" : ""; });

  EXPECT_EQ(advised("this failed", Advice::kLostWrite), "this failed; load a state instead");
  EXPECT_EQ(advised("this failed", Advice::kRemoteValue), "this failed");
  set_advice_words(nullptr);
}

}  // namespace
}  // namespace smp
