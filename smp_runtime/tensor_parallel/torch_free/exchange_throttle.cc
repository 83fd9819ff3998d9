// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/tensor_parallel/torch_free/exchange_throttle.h"

#include <utility>

#include "smp_runtime/core/error.h"

namespace smp::tensor_parallel {

ExchangeThrottle::ExchangeThrottle(int limit) : limit_(limit) {
  if (limit < 1 && limit != kUnlimited) {
    throw ConfigError(
        "SMP_NCCL_THROTTLE_LIMIT is {}; expected how many exchanges of tensor parallelism may be "
        "under way, at least 1, or -1 for any number",
        limit);
  }
}

void ExchangeThrottle::make_room() {
  if (!limits()) return;
  while (under_way_.size() >= static_cast<std::size_t>(limit_)) {
    const Wait oldest = std::move(under_way_.front());
    under_way_.pop_front();
    oldest();
  }
}

void ExchangeThrottle::add(Wait wait) {
  if (limits()) under_way_.push_back(std::move(wait));
}

}  // namespace smp::tensor_parallel
