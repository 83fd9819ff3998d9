// SPDX-License-Identifier: Apache-2.0
// The factor by which the loss is multiplied so that 16-bit gradients do not vanish.
//
// Dynamic loss scaling as in "Mixed Precision Training" (arXiv:1710.03740) and Apex: down by a
// factor after an overflow, up after a window of steps without one.
#pragma once

#include <cstdint>

namespace smp::sharding {

struct LossScaleOptions {
  bool dynamic = false;
  double scale = 1.0;  ///< initial, or for ever if not dynamic
  double factor = 2.0;
  std::int64_t window = 1000;  ///< steps without overflow until the scale grows
  double least = 1.0;
  /// Number of overflows in a row that lower the scale; the earlier ones only skip their step.
  std::int64_t delayed_shift = 1;
  /// True if a good step restores that patience at once; else only growth does.
  bool consecutive_hysteresis = false;
};

/// A pure function of the flags it was given: ranks that agree on them agree on the scale.
class LossScaler {
 public:
  /// Throws ConfigError, naming the value, for a scale or minimum that is not positive, a factor
  /// not above 1, a window or shift below 1.
  explicit LossScaler(const LossScaleOptions& options);

  [[nodiscard]] double scale() const { return scale_; }
  void set_scale(double scale);
  [[nodiscard]] bool dynamic() const { return options_.dynamic; }

  /// A step is over; without dynamic scaling nothing changes.
  void update(bool overflow);

  /// State that a checkpoint keeps.
  struct State {
    double scale = 0;
    std::int64_t good_steps = 0;
    std::int64_t patience = 0;
  };
  [[nodiscard]] State state() const { return {scale_, good_steps_, patience_}; }
  void restore(const State& state);

 private:
  LossScaleOptions options_;
  double scale_;
  std::int64_t good_steps_ = 0;  ///< since the last overflow or growth
  std::int64_t patience_;
};

}  // namespace smp::sharding
