// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/gathered_memory.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

namespace smp::sharding {
namespace {

/// Spare bytes after 100 floats came and went.
std::int64_t spare_bytes_on(at::DeviceType device) {
  GatheredMemory memory;
  const at::Tensor unit = at::empty({100}, at::TensorOptions(device).dtype(at::kFloat));
  memory.take_away(unit);
  memory.give(unit, 100);
  memory.take_away(unit);
  return memory.spare_bytes();
}

TEST(GatheredMemory, IsKeptForTheNextUnitOnTheCpu) { EXPECT_EQ(spare_bytes_on(at::kCPU), 400); }

TEST(GatheredMemory, GoesBackToTheAllocatorOfAnotherDevice) {
  EXPECT_EQ(spare_bytes_on(at::kMeta), 0);
}

}  // namespace
}  // namespace smp::sharding
