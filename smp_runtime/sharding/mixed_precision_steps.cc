// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/mixed_precision_steps.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>
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
                                         LossScaler& scaler, Options options)
    : session_(session), store_(store), scaler_(scaler), options_(options) {}

void MixedPrecisionSteps::add(MasterParameters& masters) {
  all_.push_back(&masters);
  masters.show_gradients(store_.has_gradients());
}

void MixedPrecisionSteps::remove(const MasterParameters& masters) { std::erase(all_, &masters); }

void MixedPrecisionSteps::begin_accumulation() {
  if (!store_.has_gradients()) return;
  for (MasterParameters* masters : all_) masters->take_gradients();
  if (!std::exchange(measured_, false) || overflow_) return;
  if (options_.scaled) factor_ *= scaler_.scale();
  apply_factor();
}

void MixedPrecisionSteps::begin() {
  for (MasterParameters* masters : all_) masters->show_gradients(store_.has_gradients());
  measured_ = clipped_ = counted_ = false;
  factor_ = 1.0;
}

double MixedPrecisionSteps::norm(double norm_type) {
  return norm_of_gradients(all_, norm_type) * factor_;
}

void MixedPrecisionSteps::unscale() {
  measure();
  apply_factor();
}

void MixedPrecisionSteps::measure() {
  if (!store_.has_gradients()) return;
  for (MasterParameters* masters : all_) masters->take_gradients();
  if (measured_) return;
  overflow_ = false;
  if (options_.scaled) factor_ = 1.0 / scaler_.scale();
  const double norm = this->norm(2);
  if (options_.scaled) {
    overflow_ = agree(!std::isfinite(norm));
  } else if (!std::isfinite(norm)) {
    throw_not_finite();
  }
  norm_now_ = norm;
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

void MixedPrecisionSteps::apply_factor() {
  const double factor = std::exchange(factor_, 1.0);
  if (factor == 1.0) return;
  const at::NoGradGuard no_grad;
  for (const at::Tensor& gradient : store_.gradients()) gradient.mul_(factor);
}

double MixedPrecisionSteps::clip(double max_norm, double norm_type) {
  if (!(norm_type > 0)) {
    throw ConfigError("gradients are clipped by a norm of type {}; it is above 0", norm_type);
  }
  measure();
  if (overflow_) return -1.0;
  const double norm = this->norm(norm_type);
  if (norm_type == 2) last_norm_ = norm;
  factor_ *= clipping_factor(max_norm, norm);
  apply_factor();
  norm_now_.reset();
  return norm;
}

void MixedPrecisionSteps::clip_once() {
  if (options_.clipping <= 0 || std::exchange(clipped_, true)) return;
  if (!norm_now_) norm_now_ = norm(2);
  factor_ *= clipping_factor(options_.clipping, *norm_now_);
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
    count_update();
    return std::nullopt;
  }
  clip_once();
  return factor_;
}

void MixedPrecisionSteps::end_update() {
  store_.publish();
  count_update();
}

void MixedPrecisionSteps::count_update() {
  if (!std::exchange(counted_, true)) scaler_.update(overflow_);
}

}  // namespace smp::sharding
