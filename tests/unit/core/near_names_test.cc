// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/near_names.h"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace smp {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::array<std::string_view, 4> kKnown{"SMP_PROGRESS", "SMP_METRICS", "SMP_TRACE",
                                                 "SMP_TIMEOUT_SECONDS"};

std::vector<std::string> describe(std::string_view variable) {
  const std::array<std::string_view, 3> given{"HOME", "SMP_TRACE", variable};
  return describe_unknown_variables(given, "SMP_", kKnown);
}

TEST(NearNames, TheNearestComesFirst) {
  constexpr std::array<std::string_view, 3> kNames{"partition_file", "partitions", "pipeline"};

  EXPECT_THAT(near_names("partition", kNames), ElementsAre("partitions", "partition_file"));
  EXPECT_THAT(near_names("pipelin", kNames), ElementsAre("pipeline"));
  EXPECT_THAT(near_names("learning_rate", kNames), IsEmpty());
}

TEST(NearNames, AreThreeAtMost) {
  constexpr std::array<std::string_view, 4> kNames{"sdp_a", "sdp_b", "sdp_c", "sdp_d"};

  EXPECT_THAT(near_names("sdp_", kNames), ElementsAre("sdp_a", "sdp_b", "sdp_c"));
}

TEST(UnknownVariables, NameTheOneThatIsMeant) {
  EXPECT_THAT(describe("SMP_PROGRES"),
              ElementsAre("SMP_PROGRES is not known; did you mean SMP_PROGRESS?"));
  EXPECT_THAT(describe("SMP_TIMEOUT"),
              ElementsAre("SMP_TIMEOUT is not known; did you mean SMP_TIMEOUT_SECONDS?"));
}

TEST(UnknownVariables, HaveNoNearNameByTheirPrefixAlone) {
  EXPECT_THAT(describe("SMP_FOO"), ElementsAre(testing::HasSubstr("SMP_FOO is not known; docs/")));
}

TEST(UnknownVariables, OfOtherPrefixesAreNotOurs) {
  EXPECT_THAT(describe("SMDDP_PROGRES"), IsEmpty());
  EXPECT_THAT(describe("SMP_METRICS"), IsEmpty());
}

}  // namespace
}  // namespace smp
