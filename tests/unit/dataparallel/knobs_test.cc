// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/dataparallel/knobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"
#include "tests/unit/refusal.h"

namespace smp::dataparallel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Knobs, DefaultsAreThoseOfTheTable) {
  const Knobs knobs = make_knobs({{"SMDDP_SLOT_BYTES", ""}});
  const collectives::Tuning tuning;

  EXPECT_EQ(knobs.tuning.slot_bytes, tuning.slot_bytes);
  EXPECT_EQ(knobs.tuning.wire_slot_bytes, tuning.wire_slot_bytes);
  EXPECT_EQ(knobs.tuning.small_bytes, tuning.small_bytes);
  EXPECT_EQ(knobs.gpu_route, std::nullopt);
  EXPECT_EQ(knobs.log_level, log::Level::kInfo);
}

TEST(Knobs, ValuesAreChecked) {
  EXPECT_EQ(make_knobs({{"SMDDP_SLOT_BYTES", "4096"}}).tuning.slot_bytes, 4096U);
  EXPECT_EQ(make_knobs({{"SM_LOG_LEVEL", "debug"}}).log_level, log::Level::kDebug);
  for (const auto& [variable, text, expected] :
       {std::tuple{"SMDDP_SLOT_BYTES", "0", "a number of bytes from 1 to"},
        std::tuple{"SMDDP_SMALL_BYTES", "32k", "a number of bytes from 1 to"},
        std::tuple{"SMDDP_GPU_ROUTE", "gpu", "expected auto, host, nccl-inside or nccl"},
        std::tuple{"SM_LOG_LEVEL", "loud", "expected a number, or DEBUG"}}) {
    EXPECT_THAT(refusal([&] {
                  make_knobs({{variable, text}});
                }),
                testing::AllOf(HasSubstr(variable), HasSubstr(text), HasSubstr(expected)));
  }
}

TEST(Knobs, ThatAreNotKnownNameTheNearest) {
  EXPECT_THAT(describe_unknown_knobs({{"SMDDP_INTERFACES", "lo"}, {"SMP_X", ""}, {"PATH", ""}}),
              ElementsAre("SMDDP_INTERFACES is not known; did you mean SMDDP_INTERFACE?"));
}

}  // namespace
}  // namespace smp::dataparallel
