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

std::string report(const Waits& waits) {
  return hang_report("rank 3", 7, std::chrono::seconds(60), waits,
                     [](int64_t target) { return fmt::format("layer{}", target); });
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

  EXPECT_EQ(report(waits),
            "step 7: rank 3 waited 60 s without progress:\n"
            "  microbatch 2 waits for the backward of layer4 on rank 1, then of layer5 on rank 2 "
            "of the pipeline group\n"
            "  for a tensor of rank 6 of the pipeline group\n"
            "  microbatch 1: a call of layer8 waits for an argument that comes from a third rank\n"
            "  microbatch 9: its forward waits for the backward of another one on this rank\n"
            "  with work at hand that the order of the recorded step has later");
}

TEST(HangReport, SaysWhomARankWithoutCallsWaitsFor) {
  EXPECT_THAT(report({.driver = true}), EndsWith("for the other ranks of the pipeline group"));
  EXPECT_THAT(report({}), HasSubstr("for rank 0 of the pipeline group, which drives the step"));
  EXPECT_THAT(report({.held_by_order = true}), Not(HasSubstr("which drives the step")));
}

}  // namespace
}  // namespace smp::pipeline
