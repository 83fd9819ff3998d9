// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/mixed_precision_steps.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <ATen/ops/tensor.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/sharding/gradient_clipping.h"

namespace smp::sharding {
namespace {

double clipping_factor(double max_norm, double norm) {
  return std::min(1.0, max_norm / (norm + kLeastNorm));
}

}  // namespace

MixedPrecisionSteps::MixedPrecisionSteps(session::Session& session, ParameterStore& store,
                                         MasterParameters& masters, LossScaler& scaler,
                                         Options options)
    : session_(session), store_(store), masters_(masters), scaler_(scaler), options_(options) {}

void MixedPrecisionSteps::begin() {
  masters_.show_gradients(store_.has_gradients());
  measured_ = false;
  factor_ = 1.0;
}

void MixedPrecisionSteps::unscale() {
  measure();
  apply_factor();
}

void MixedPrecisionSteps::measure() {
  if (measured_ || !store_.has_gradients()) return;
  overflow_ = false;
  if (options_.scaled) factor_ = 1.0 / scaler_.scale();
  const double norm = masters_.norm(2) * factor_;
  if (options_.scaled) {
    overflow_ = agree(!std::isfinite(norm));
  } else if (!std::isfinite(norm)) {
    throw_not_finite();
  }
  last_norm_ = overflow_ ? -1.0 : norm;
  measured_ = true;  // not after an error: who steps once more gets it once more
}

bool MixedPrecisionSteps::agree(bool overflow) {
  if (session_.ranks().size == 1) return overflow;
  at::Tensor flag = at::tensor({overflow ? 1.0F : 0.0F});
  session_.all_reduce("the loss scale", flag, *session_.groups().cpu_group(topology::Group::kWorld),
                      c10d::ReduceOp::MAX);
  return flag.item<float>() != 0;
}

void MixedPrecisionSteps::throw_not_finite() {
  const std::string name = store_.not_finite();
  if (name.empty()) {
    throw UserCodeError(
        "a gradient on another rank of this copy of the model has NaN or infinity; the step was "
        "not made, and that rank names the parameter");
  }
  throw UserCodeError("the gradient of parameter {} has NaN or infinity; the step was not made",
                      name);
}

void MixedPrecisionSteps::apply_factor() { masters_.scale_gradients(std::exchange(factor_, 1.0)); }

double MixedPrecisionSteps::clip(double max_norm, double norm_type) {
  if (!(norm_type > 0)) {
    throw ConfigError("gradients are clipped by a norm of type {}; it is above 0", norm_type);
  }
  measure();
  if (overflow_) return -1.0;
  const double norm = masters_.norm(norm_type) * factor_;
  if (norm_type == 2) last_norm_ = norm;
  factor_ *= clipping_factor(max_norm, norm);
  apply_factor();
  return norm;
}

std::optional<double> MixedPrecisionSteps::begin_update() {
  if (store_.is_accumulating()) {
    throw UserCodeError(
        "optimizer.step() was called before the last of backward_passes_per_step steps: gradients "
        "are not averaged over replicas yet");
  }
  if (!store_.has_gradients()) return std::nullopt;  // as any optimizer without gradients
  // Also where nothing clips: what is not finite would stay in masters and moments.
  measure();
  if (overflow_) {
    scaler_.update(true);
    return std::nullopt;
  }
  if (options_.clipping > 0 && last_norm_)
    factor_ *= clipping_factor(options_.clipping, *last_norm_);
  return factor_;
}

void MixedPrecisionSteps::end_update() {
  store_.publish();
  scaler_.update(false);
}

}  // namespace smp::sharding
