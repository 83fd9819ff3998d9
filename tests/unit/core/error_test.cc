// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using testing::HasSubstr;

TEST(Error, FormatsItsArguments) {
  const smp::ConfigError error("microbatches: {} does not divide {}", 3, 8);

  EXPECT_STREQ(error.what(), "microbatches: 3 does not divide 8");
}

TEST(Error, TakesAPlainStringWithBracesAsItIs) {
  const std::string text = "found {\"a\": 1}";

  EXPECT_STREQ(smp::HostError(text).what(), text.c_str());
}

TEST(Check, NamesConditionFileAndLine) {
  const int slots = 0;

  try {
    SMP_CHECK(slots > 0, "slots is {}", slots);
    FAIL() << "did not throw";
  } catch (const smp::InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("slots is 0"));
    EXPECT_THAT(error.what(), HasSubstr("error_test.cc"));
    EXPECT_THAT(error.what(), HasSubstr("slots > 0"));
  }
}

}  // namespace
