// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/variables.h"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace smp {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::array<VariableRow, 4> kTable{{{"SMP_PROGRESS", "", ""},
                                             {"SMP_METRICS", "", ""},
                                             {"SMP_TRACE", "", ""},
                                             {"SMP_TIMEOUT_SECONDS", "", ""}}};

std::vector<std::string> describe(const std::string& variable) {
  const Variables given{{"HOME", "/"}, {"SMP_TRACE", "1"}, {variable, "1"}};
  return VariableSet(kTable, given).unknown("SMP_");
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
