// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/step_order.h"

#include <chrono>
#include <cstdint>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/plain_bytes.h"

namespace smp::pipeline {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// As a rank tells of one run of a module.
std::string told(int64_t run, int64_t depth, int64_t phase) {
  std::string bytes;
  for (const int64_t field : {run, depth, phase}) append_plain(bytes, field);
  return bytes;
}

StepOrder in_a_recorded_step() {
  StepOrder order({.active_microbatches = 2}, /*deterministic=*/true, /*ranks=*/2);
  order.begin_step("step", 2);
  return order;
}

TEST(StepOrder, APeersModeIsOneThatThereIs) {
  std::string bytes = RankOrder{.mode = OrderMode::kRecord}.encode();
  ASSERT_EQ(RankOrder::decode(bytes).mode, OrderMode::kRecord);

  for (const char mode : {'\x03', '\xff'}) {
    bytes.front() = mode;
    EXPECT_THAT([&] { static_cast<void>(RankOrder::decode(bytes)); },
                ThrowsMessage<InternalError>(HasSubstr("an order of mode")));
  }
}

TEST(StepOrder, APeersRunsHaveAPhaseAndADepth) {
  for (const std::string& bytes : {told(0, 0, -1), told(0, 0, 7), told(0, int64_t{1} << 40, 0),
                                   told(0, -(int64_t{1} << 40), 0)}) {
    StepOrder order = in_a_recorded_step();
    EXPECT_THAT([&] { order.add_recorded(1, bytes); },
                ThrowsMessage<InternalError>(HasSubstr("from rank 1")));
  }
}

TEST(StepOrder, OfNoRunsThereIsNoPlan) {
  StepOrder order = in_a_recorded_step();
  order.add_recorded(1, "");

  EXPECT_THAT([&] { order.finish_step(std::chrono::milliseconds(1)); },
              ThrowsMessage<InternalError>(HasSubstr("0 runs")));
}

}  // namespace
}  // namespace smp::pipeline
