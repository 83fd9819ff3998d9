// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/planner/plan_document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"

namespace smp::planner {
namespace {

std::string refusal(std::string_view question) {
  try {
    return answer(question);
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(PlanDocument, WhatIsNoQuestionIsRefusedByItsKey) {
  EXPECT_THAT(refusal("no JSON"), testing::HasSubstr("a question to the planner"));
  EXPECT_THAT(refusal("{}"), testing::HasSubstr("profile"));
  EXPECT_THAT(refusal(R"({"profile": {"batch": "many"}})"), testing::HasSubstr("a question"));
}

TEST(PlanDocument, MachinesOfATypeAreWrittenWhole) {
  EXPECT_THAT(machines_document("ml.g5.12xlarge", 2),
              testing::AllOf(testing::HasSubstr(R"("hosts":2)"), testing::HasSubstr("A10G")));
}

}  // namespace
}  // namespace smp::planner
