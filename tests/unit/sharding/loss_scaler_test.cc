// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/torch_free/loss_scaler.h"

#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/refusal.h"

namespace smp::sharding {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<double> scales(LossScaler scaler, const std::vector<bool>& overflows) {
  std::vector<double> seen;
  for (const bool overflow : overflows) {
    scaler.update(overflow);
    seen.push_back(scaler.scale());
  }
  return seen;
}

TEST(LossScaler, StaysWhereItIsWithoutDynamics) {
  EXPECT_THAT(scales(LossScaler({.scale = 128}), {true, false, true}), ElementsAre(128, 128, 128));
}

TEST(LossScaler, FallsAfterAnOverflowAndRisesAfterAWindow) {
  const LossScaler scaler({.dynamic = true, .scale = 8, .window = 2});

  EXPECT_THAT(scales(scaler, {true, false, false, false, true, false, false}),
              ElementsAre(4, 4, 8, 8, 4, 4, 8));
}

TEST(LossScaler, NeverFallsBelowTheLeast) {
  const LossScaler scaler({.dynamic = true, .scale = 4, .factor = 4, .least = 2});

  EXPECT_THAT(scales(scaler, {true, true}), ElementsAre(2, 2));
}

TEST(LossScaler, DelayedShiftForgivesOverflowsUntilItRises) {
  const LossScaler scaler({.dynamic = true, .scale = 8, .window = 3, .delayed_shift = 2});

  EXPECT_THAT(scales(scaler, {true, false, true, true, false, false, false, true}),
              ElementsAre(8, 8, 4, 2, 2, 2, 4, 4));
}

TEST(LossScaler, ConsecutiveHysteresisForgivesAfterEachGoodStep) {
  const LossScaler scaler(
      {.dynamic = true, .scale = 8, .delayed_shift = 2, .consecutive_hysteresis = true});

  EXPECT_THAT(scales(scaler, {true, false, true, true}), ElementsAre(8, 8, 8, 4));
}

TEST(LossScaler, StaysAFloat) {
  LossScaler scaler({.dynamic = true, .scale = 0x1p127, .window = 1});

  scaler.update(false);

  EXPECT_EQ(scaler.scale(), 0x1p127);
}

TEST(LossScaler, GoesOnFromASavedState) {
  LossScaler scaler({.dynamic = true, .scale = 8, .window = 2});
  scaler.update(false);

  LossScaler restored({.dynamic = true, .scale = 1, .window = 2});
  restored.restore(scaler.state());

  EXPECT_THAT(scales(restored, {false}), ElementsAre(16));
}

TEST(LossScaler, RefusesValuesThatCannotScale) {
  const auto refused = [](const LossScaleOptions& options) {
    return refusal([&] { LossScaler scaler(options); });
  };

  EXPECT_THAT(refused({.scale = 0}), HasSubstr("the scale is 0; expected a positive number"));
  EXPECT_THAT(refused({.scale = std::numeric_limits<double>::quiet_NaN()}), HasSubstr("nan"));
  EXPECT_THAT(refused({.factor = 1}), HasSubstr("scale_factor is 1; expected a number above 1"));
  EXPECT_THAT(refused({.window = 0}), HasSubstr("scale_window is 0"));
  EXPECT_THAT(refused({.least = -1}), HasSubstr("min_scale is -1"));
  EXPECT_THAT(refused({.delayed_shift = 0}), HasSubstr("delayed_shift is 0"));
}

}  // namespace
}  // namespace smp::sharding
