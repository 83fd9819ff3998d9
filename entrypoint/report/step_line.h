// SPDX-License-Identifier: Apache-2.0
// One line of a rank's record: a step, or several that follow each other.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "smp_runtime/record/activity.h"

namespace entrypoint::report {

/// All times in microseconds; `begin` since 1970.
struct StepLine {
  std::int64_t step = 0;  ///< the first one
  std::int64_t steps = 0;
  std::int64_t trained = 0;  ///< of these
  std::int64_t samples = 0;  ///< of this rank's batches
  std::int64_t begin = 0;
  std::int64_t total = 0;    ///< from the begin of a step to that of the next
  std::int64_t longest = 0;  ///< of one of the steps
  std::int64_t inside = 0;   ///< of smp.step
  std::int64_t nested = 0;   ///< waits for other ranks within what ran
  std::int64_t messages = 0;
  std::int64_t bytes = 0;
  std::array<std::int64_t, smp::record::kActivities> spent{};

  [[nodiscard]] std::int64_t spent_on(smp::record::Activity activity) const {
    return spent[static_cast<std::size_t>(activity)];
  }

  /// Running modules, without waiting for what they need of other ranks.
  [[nodiscard]] std::int64_t computed() const {
    using enum smp::record::Activity;
    return std::max<std::int64_t>(
        0, spent_on(kForward) + spent_on(kBackward) + spent_on(kDeferred) - nested);
  }

  /// With the steps that follow. `longest` of what is empty is nothing. Numbers of lines are at
  /// most kLargestNumber, sums end at kLargestSum.
  void add(const StepLine& next) {
    if (steps == 0) {
      step = next.step;
      begin = next.begin;
    }
    const auto more = [](std::int64_t& sum, std::int64_t number) {
      sum = std::clamp(sum + number, -kLargestSum, kLargestSum);
    };
    more(steps, next.steps);
    more(trained, next.trained);
    more(samples, next.samples);
    more(total, next.total);
    longest = std::max(longest, next.longest);
    more(inside, next.inside);
    more(nested, next.nested);
    more(messages, next.messages);
    more(bytes, next.bytes);
    for (std::size_t i = 0; i < spent.size(); ++i) more(spent[i], next.spent[i]);
  }

  static constexpr std::int64_t kLargestSum = std::int64_t{1} << 60;
};

}  // namespace entrypoint::report
