// SPDX-License-Identifier: Apache-2.0
#include "smp/optimizer.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include <torch/optim/lbfgs.h>

#include "smp_runtime/api/optimizer_core.h"
#include "smp_runtime/api/optimizer_fields.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/sharding/gradient_clipping.h"

namespace smp {

DistributedOptimizer::Core::Core(std::shared_ptr<DistributedModel::Core> model,
                                 std::unique_ptr<torch::optim::Optimizer> optimizer,
                                 const LossScale& scale)
    : model_(std::move(model)), optimizer_(std::move(optimizer)), scaler_(scale_of(scale)) {
  refuse_unfit();
  for (const auto& group : optimizer_->param_groups()) groups_.push_back(group.params());
  if (model_->state() != nullptr) {
    take_masters();
    model_->attach_optimizer(*steps_);
  }
  model_->set_optimizer_bytes(this, [this] { return state_bytes(); });
}

DistributedOptimizer::Core::~Core() {
  model_->forget_optimizer_bytes(this);
  if (steps_) model_->detach_optimizer();
}

void DistributedOptimizer::Core::zero_grad() {
  if (!steps_) {  // also of what the optimizer does not step, or that would add up
    for (const at::Tensor& parameter : model_->parameters()) parameter.mutable_grad().reset();
    return;
  }
  model_->state()->store().zero_gradients();
  steps_->begin();  // takes the gradients from the masters, which torch's zero_grad() refuses
}

void DistributedOptimizer::Core::step() {
  const metrics::OptimizerTime time(model_->session().reports());
  update();
}

/// Counts the state of SGD, Adam, AdamW, RMSprop and Adagrad; 0 for others.
std::int64_t DistributedOptimizer::Core::state_bytes() {
  std::int64_t bytes = 0;
  const api::OptimizerFields* const fields = api::find_fields_of(*optimizer_);
  if (fields == nullptr) return 0;
  for (const auto& group : optimizer_->param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      for (const auto& [name, tensor] : fields->state_of(*optimizer_, parameter).tensors) {
        bytes += static_cast<std::int64_t>(tensor.nbytes());
      }
    }
  }
  return bytes;
}

double DistributedOptimizer::Core::clip(double max_norm, double norm_type) {
  if (steps_) return steps_->clip(max_norm, norm_type);
  sharding::RankGradients gradients;
  for (const auto& group : optimizer_->param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (parameter.grad().defined()) gradients.whole.push_back(parameter.grad());
    }
  }
  return sharding::clip_gradients(session(), "DistributedOptimizer::clip_gradients", gradients,
                                  max_norm, norm_type, model_->device())
      .item<double>();
}

sharding::LossScaleOptions DistributedOptimizer::Core::scale_of(const LossScale& scale) const {
  if (!model_->session().config().fp16) return {};
  return {.dynamic = scale.dynamic,
          .scale = scale.scale,
          .factor = scale.factor,
          .window = scale.window,
          .least = scale.least};
}

void DistributedOptimizer::Core::refuse_unfit() const {
  if (dynamic_cast<const torch::optim::LBFGS*>(optimizer_.get()) != nullptr) {
    throw ConfigError(
        "smp::DistributedOptimizer got LBFGS, whose step evaluates the model several times; use "
        "an optimizer that steps once, such as AdamW");
  }
  if (model_->state() != nullptr && !optimizer_->state().empty()) {
    throw ConfigError(
        "smp::DistributedOptimizer got an optimizer that has state of the model's parameters "
        "already, and under these mp_parameters it steps 32-bit masters; wrap one that has made "
        "no step, and none of Adagrad, which begins with state");
  }
  for (const auto& group : optimizer_->param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const bool is_own = std::ranges::any_of(
          model_->parameters(), [&](const at::Tensor& own) { return own.is_same(parameter); });
      if (is_own) continue;
      std::ostringstream shape;
      shape << parameter.sizes();
      throw ConfigError(
          "smp::DistributedOptimizer got an optimizer with a parameter of shape {} that is not "
          "of this rank's units; make it from DistributedModel::parameters()",
          shape.str());
    }
  }
}

void DistributedOptimizer::Core::take_masters() {
  api::ModelState& state = *model_->state();
  sharding::MasterOptions options{.groups = static_cast<int>(optimizer_->param_groups().size()),
                                  .control = state.groups().control};
  for (const auto& parameter : state.parameters()) {
    options.origins.push_back({.shape = parameter.tensor.sizes().vec(),
                               .group = -1,
                               .is_whole = state.groups().degree == 1 || !state.plan().cut});
  }
  int number = 0;
  for (auto& group : optimizer_->param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const int origin = state.number_of(parameter);
      if (origin >= 0) options.origins[static_cast<std::size_t>(origin)].group = number;
    }
    group.params().clear();
    ++number;
  }
  masters_.emplace(session(), state.store(), std::move(options));
  for (const sharding::MasterRun& run : masters_->runs()) {
    optimizer_->param_groups()[static_cast<std::size_t>(run.group)].params().push_back(
        run.parameter);
  }
  const auto& config = model_->session().config();
  steps_.emplace(session(), state.store(), scaler_,
                 sharding::MixedPrecisionSteps::Options{
                     .scaled = config.fp16,
                     .clipping = state.plan().on_demand ? config.sdp_gradient_clipping : 0.0});
  steps_->add(*masters_);
}

void DistributedOptimizer::Core::update() {
  if (!steps_) {
    optimizer_->step();
    return;
  }
  if (!steps_->begin_update()) {
    if (overflow()) {
      model_->session().reports().event("overflow", fmt::format("loss scale {:g}", loss_scale()));
    }
    return;
  }
  steps_->apply_factor();
  optimizer_->step();
  steps_->end_update();
}

DistributedOptimizer::DistributedOptimizer(DistributedModel& model,
                                           std::unique_ptr<torch::optim::Optimizer> optimizer,
                                           LossScale scale)
    : core_(std::make_shared<Core>(model.core(), std::move(optimizer), scale)) {}
DistributedOptimizer::DistributedOptimizer(DistributedOptimizer&&) noexcept = default;
DistributedOptimizer& DistributedOptimizer::operator=(DistributedOptimizer&&) noexcept = default;
DistributedOptimizer::~DistributedOptimizer() = default;

void DistributedOptimizer::zero_grad() { core_->zero_grad(); }
void DistributedOptimizer::step() { core_->step(); }
double DistributedOptimizer::clip_gradients(double max_norm, double norm_type) {
  return core_->clip(max_norm, norm_type);
}
bool DistributedOptimizer::overflow() const { return core_->overflow(); }
double DistributedOptimizer::loss_scale() const { return core_->loss_scale(); }
torch::optim::Optimizer& DistributedOptimizer::wrapped() { return core_->wrapped(); }

}  // namespace smp
