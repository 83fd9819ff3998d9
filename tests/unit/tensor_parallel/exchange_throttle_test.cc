// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/tensor_parallel/torch_free/exchange_throttle.h"

#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/refusal.h"

namespace smp::tensor_parallel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Starts `count` exchanges; the numbers of those that were waited for, before the last began.
std::vector<int> waited_for(int limit, int count) {
  ExchangeThrottle throttle(limit);
  std::vector<int> waited;
  for (int number = 0; number < count; ++number) {
    throttle.make_room();
    throttle.add([&waited, number] { waited.push_back(number); });
  }
  return waited;
}

TEST(ExchangeThrottle, WaitsForTheOldestWhereThereIsNoRoom) {
  EXPECT_THAT(waited_for(3, 3), IsEmpty());
  EXPECT_THAT(waited_for(3, 5), ElementsAre(0, 1));
  EXPECT_THAT(waited_for(1, 3), ElementsAre(0, 1));
}

TEST(ExchangeThrottle, WithoutALimitNothingIsWaitedFor) {
  EXPECT_THAT(waited_for(ExchangeThrottle::kUnlimited, 100), IsEmpty());
  EXPECT_FALSE(ExchangeThrottle(ExchangeThrottle::kUnlimited).limits());
}

TEST(ExchangeThrottle, AnExchangeThatFailedIsNotWaitedForAgain) {
  ExchangeThrottle throttle(1);
  throttle.add([] { throw std::runtime_error("lost"); });

  EXPECT_THROW(throttle.make_room(), std::runtime_error);
  EXPECT_NO_THROW(throttle.make_room());
}

TEST(ExchangeThrottle, RefusesWhatIsNoNumberOfExchanges) {
  for (const int limit : {0, -2}) {
    EXPECT_THAT(refusal([&] { ExchangeThrottle throttle(limit); }),
                HasSubstr("SMP_NCCL_THROTTLE_LIMIT is " + std::to_string(limit)));
  }
}

}  // namespace
}  // namespace smp::tensor_parallel
