// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/torch_free/loss_scaler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "smp_runtime/core/error.h"

namespace smp::sharding {
namespace {

void require(bool holds, const char* name, double value, const char* expected) {
  if (!holds) throw ConfigError("loss scale: {} is {}; expected {}", name, value, expected);
}

bool is_positive(double value) { return std::isfinite(value) && value > 0; }

}  // namespace

LossScaler::LossScaler(const LossScaleOptions& options)
    : options_(options), scale_(options.scale), patience_(options.delayed_shift) {
  require(is_positive(options.scale), "the scale", options.scale, "a positive number");
  require(is_positive(options.least), "min_scale", options.least, "a positive number");
  require(std::isfinite(options.factor) && options.factor > 1, "scale_factor", options.factor,
          "a number above 1");
  require(options.window >= 1, "scale_window", static_cast<double>(options.window), "at least 1");
  require(options.delayed_shift >= 1, "delayed_shift", static_cast<double>(options.delayed_shift),
          "at least 1");
}

void LossScaler::set_scale(double scale) {
  require(is_positive(scale), "the scale", scale, "a positive number");
  scale_ = scale;
}

void LossScaler::update(bool overflow) {
  if (!options_.dynamic) return;
  if (overflow) {
    good_steps_ = 0;
    if (patience_ > 1) {
      --patience_;
    } else {
      scale_ = std::max(scale_ / options_.factor, options_.least);
    }
    return;
  }
  if (options_.consecutive_hysteresis) patience_ = options_.delayed_shift;
  if (++good_steps_ % options_.window != 0) return;
  patience_ = options_.delayed_shift;
  // The loss is a float: an infinite scale would make every gradient NaN.
  constexpr double kMost = std::numeric_limits<float>::max();
  if (scale_ * options_.factor <= kMost) scale_ *= options_.factor;
}

void LossScaler::restore(const State& state) {
  set_scale(state.scale);
  good_steps_ = state.good_steps;
  patience_ = std::clamp<std::int64_t>(state.patience, 1, options_.delayed_shift);
}

}  // namespace smp::sharding
