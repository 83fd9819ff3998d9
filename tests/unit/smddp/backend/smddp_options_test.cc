// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/backend/smddp_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"
#include "tests/unit/refusal.h"

namespace smp::smddp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SmddpOptions, DefaultsAreThoseOfTheTable) {
  const SmddpOptions options = make_options({{"SMDDP_SLOT_BYTES", ""}});
  const collectives::Tuning tuning;

  EXPECT_EQ(options.tuning.buffer_bytes, tuning.buffer_bytes);
  EXPECT_EQ(options.tuning.network_buffer_bytes, tuning.network_buffer_bytes);
  EXPECT_EQ(options.tuning.small_bytes, tuning.small_bytes);
  EXPECT_EQ(options.gpu_route, std::nullopt);
  EXPECT_EQ(options.log_level, log::Level::kInfo);
}

TEST(SmddpOptions, ValuesAreChecked) {
  EXPECT_EQ(make_options({{"SMDDP_SLOT_BYTES", "4096"}}).tuning.buffer_bytes, 4096U);
  EXPECT_EQ(make_options({{"SM_LOG_LEVEL", "debug"}}).log_level, log::Level::kDebug);
  for (const auto& [variable, text, expected] :
       {std::tuple{"SMDDP_SLOT_BYTES", "0", "a number of bytes from 1 to"},
        std::tuple{"SMDDP_SMALL_BYTES", "32k", "a number of bytes from 1 to"},
        std::tuple{"SMDDP_GPU_ROUTE", "gpu", "expected auto, host, nccl-inside or nccl"},
        std::tuple{"SM_LOG_LEVEL", "loud", "a level of Python's logging"}}) {
    EXPECT_THAT(refusal([&] {
                  make_options({{variable, text}});
                }),
                testing::AllOf(HasSubstr(variable), HasSubstr(text), HasSubstr(expected)));
  }
}

TEST(SmddpOptions, ThatAreNotKnownNameTheNearest) {
  EXPECT_THAT(describe_unknown_options({{"SMDDP_INTERFACES", "lo"}, {"SMP_X", ""}, {"PATH", ""}}),
              ElementsAre("SMDDP_INTERFACES is not known; did you mean SMDDP_INTERFACE?"));
}

}  // namespace
}  // namespace smp::smddp
