// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/error.h"

#include <cerrno>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace smp {
namespace {

using testing::HasSubstr;

TEST(Error, FormatsItsArguments) {
  const ConfigError error("microbatches: {} does not divide {}", 3, 8);

  EXPECT_STREQ(error.what(), "microbatches: 3 does not divide 8");
}

TEST(Error, TakesAPlainStringWithBracesAsItIs) {
  const std::string text = "found {\"a\": 1}";

  EXPECT_STREQ(HostError(text).what(), text.c_str());
}

TEST(Check, NamesConditionFileAndLine) {
  const int slots = 0;

  try {
    SMP_CHECK(slots > 0, "slots is {}", slots);
    FAIL() << "did not throw";
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("slots is 0"));
    EXPECT_THAT(error.what(), HasSubstr("error_test.cc"));
    EXPECT_THAT(error.what(), HasSubstr("slots > 0"));
  }
}

TEST(Advice, StandsBehindTheFactsInTheWordsOfTheFace) {
  EXPECT_EQ(advised("this failed", Advice::kLostWrite), "this failed");

  set_advice_words(
      [](Advice advice) { return advice == Advice::kLostWrite ? "; load a state instead" : ""; });

  EXPECT_EQ(advised("this failed", Advice::kLostWrite), "this failed; load a state instead");
  EXPECT_EQ(advised("this failed", Advice::kRemoteValue), "this failed");
  set_advice_words(nullptr);
}

TEST(SystemErrorText, SaysWhichLimitToRaise) {
  EXPECT_THAT(system_error_text(EMFILE),
              testing::MatchesRegex("Too many open files: .* is [0-9]+ open files; raise it "
                                    "\\(ulimit -n\\), or have fewer groups at a time"));
  EXPECT_EQ(system_error_text(ENOENT), std::strerror(ENOENT));
}

}  // namespace
}  // namespace smp
