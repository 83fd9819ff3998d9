// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/hang_report.h"

#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace smp::pipeline {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

std::string lines_of(const Waits& waits) {
  return describe(waits, [](int64_t target) { return fmt::format("layer{}", target); });
}

TEST(HangReport, NamesEveryModuleOnTheWayAndWhoWaits) {
  Waits waits;
  waits.calls.push_back({.microbatch = 2,
                         .phase = Phase::kBackward,
                         .route = {{.owner = 1, .target = 4}, {.owner = 2, .target = 5}}});
  waits.tensor_of = 6;
  waits.parked.push_back({.microbatch = 1, .target = 8});
  waits.held = {9};
  waits.held_by_order = true;

  EXPECT_EQ(lines_of(waits),
            "\n  microbatch 2 waits for the backward of layer4 on rank 1, then of layer5 on rank 2 "
            "of the pipeline group\n"
            "  for a tensor of rank 6 of the pipeline group\n"
            "  microbatch 1: a call of layer8 waits for an argument that comes from a third rank\n"
            "  microbatch 9: its forward waits for the backward of another one on this rank\n"
            "  with work at hand that the order of the recorded step has later");
}

TEST(HangReport, SaysWhomARankWithoutCallsWaitsFor) {
  EXPECT_THAT(lines_of({.driver = true}), EndsWith("for the other ranks of the pipeline group"));
  EXPECT_THAT(lines_of({}), HasSubstr("for rank 0 of the pipeline group, which drives the step"));
  EXPECT_THAT(lines_of({.held_by_order = true}), Not(HasSubstr("which drives the step")));
}

TEST(HangReport, HasTheLinesOfAllRanksThatAnswer) {
  EXPECT_EQ(hang_report("rank 5", 1, 7, std::chrono::seconds(60),
                        {"\n  for rank 2", "\n  for rank 0", std::nullopt}),
            "step 7: rank 5 waited 60 s without progress:\n"
            "  for rank 0\n"
            "rank 0 of the pipeline group waits:\n"
            "  for rank 2\n"
            "rank 2 of the pipeline group does not answer: it is lost, or runs a module or code "
            "outside the step");
}

}  // namespace
}  // namespace smp::pipeline
