// SPDX-License-Identifier: Apache-2.0
// Quantiles of many durations in little memory.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace entrypoint::report {

/// Microseconds up to a day, told apart by 2 %.
class Durations {
 public:
  void add(std::int64_t micros, std::int64_t times = 1) {
    count_ += times;
    counts_[bin_of(micros)] += times;
  }
  void add(const Durations& other) {
    count_ += other.count_;
    for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
  }

  [[nodiscard]] std::int64_t count() const { return count_; }

  /// `share` of them is at most so long; 0 of none.
  [[nodiscard]] double quantile(double share) const {
    auto left = static_cast<std::int64_t>(std::ceil(share * static_cast<double>(count_)));
    for (std::size_t bin = 0; bin < counts_.size(); ++bin) {
      left -= counts_[bin];
      if (left <= 0 && count_ > 0) return std::pow(kStep, static_cast<double>(bin));
    }
    return 0;
  }

 private:
  static constexpr double kStep = 1.02;
  static constexpr std::size_t kBins = 1280;

  static std::size_t bin_of(std::int64_t micros) {
    if (micros <= 1) return 0;
    const double bin = std::log(static_cast<double>(micros)) / std::log(kStep);
    return std::min(kBins - 1, static_cast<std::size_t>(std::lround(bin)));
  }

  std::array<std::int64_t, kBins> counts_{};
  std::int64_t count_ = 0;
};

}  // namespace entrypoint::report
