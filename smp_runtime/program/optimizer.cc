// SPDX-License-Identifier: Apache-2.0
#include "smp/optimizer.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <utility>

#include <torch/optim/lbfgs.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/program/model_core.h"
#include "smp_runtime/sharding/gradient_clipping.h"
#include "smp_runtime/sharding/mixed_precision_steps.h"

namespace smp {

using topology::Group;

class DistributedOptimizer::Core {
 public:
  Core(std::shared_ptr<DistributedModel::Core> model,
       std::unique_ptr<torch::optim::Optimizer> optimizer, const LossScale& scale)
      : model_(std::move(model)),
        optimizer_(std::move(optimizer)),
        scaler_(std::make_shared<sharding::LossScaler>(scale_of(scale))) {
    refuse_unfit();
    if (model_->state() == nullptr) return;
    take_masters();
    model_->scale_loss(scaler_);
    model_->on_gradients([this] { steps_->begin(); });
  }
  ~Core() { model_->on_gradients({}); }
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  void zero_grad() {
    if (!steps_) {
      optimizer_->zero_grad();
      return;
    }
    model_->state()->store().zero_gradients();
    steps_->begin();  // which also drops the masters' gradients, views that cannot be detached
  }

  void step() {
    const auto& recorder = session().recorder();
    if (recorder) recorder->begin_optimizer();
    update();
    if (recorder) recorder->end_optimizer();
  }

  double clip(double max_norm, double norm_type) {
    if (steps_) return steps_->clip(max_norm, norm_type);
    sharding::RankGradients gradients;
    for (const at::Tensor& parameter : model_->parameters()) {
      if (parameter.grad().defined()) gradients.whole.push_back(parameter.grad());
    }
    const c10::Device device =
        model_->parameters().empty() ? c10::Device(at::kCPU) : model_->parameters()[0].device();
    return sharding::clip_gradients(session(), "DistributedOptimizer::clip_gradients", gradients,
                                    max_norm, norm_type, device)
        .item<double>();
  }

  [[nodiscard]] bool overflow() const { return steps_ && steps_->overflow(); }
  [[nodiscard]] double loss_scale() const { return scaler_->scale(); }
  torch::optim::Optimizer& wrapped() { return *optimizer_; }

 private:
  [[nodiscard]] session::Session& session() const { return model_->session().session(); }

  [[nodiscard]] sharding::LossScaleOptions scale_of(const LossScale& scale) const {
    if (!model_->session().config().fp16) return {};
    return {.dynamic = scale.dynamic,
            .scale = scale.scale,
            .factor = scale.factor,
            .window = scale.window,
            .least = scale.least};
  }

  void refuse_unfit() const {
    const program::ModelState* state = model_->state();
    const bool shares = session().mesh().size(Group::kMp) > 1 ||
                        (state != nullptr && state->plan().cuts_parameters());
    if (shares && dynamic_cast<const torch::optim::LBFGS*>(optimizer_.get()) != nullptr) {
      throw ConfigError(
          "smp::DistributedOptimizer got LBFGS, whose update needs all parameters at once; here "
          "ranks share them. Use another optimizer, or neither partitions nor sharding");
    }
    if (!optimizer_->state().empty()) {
      throw ConfigError(
          "smp::DistributedOptimizer got an optimizer that has made steps; wrap it before the "
          "first");
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

  void take_masters() {
    program::ModelState& state = *model_->state();
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
    steps_.emplace(session(), state.store(), *masters_, *scaler_,
                   sharding::MixedPrecisionSteps::Options{
                       .scaled = config.fp16,
                       .clipping = state.plan().on_demand ? config.sdp_gradient_clipping : 0.0});
    steps_->begin();
  }

  void update() {
    if (!steps_) {
      optimizer_->step();
      return;
    }
    if (!steps_->begin_update()) return;
    steps_->apply_factor();
    optimizer_->step();
    steps_->end_update();
  }

  const std::shared_ptr<DistributedModel::Core> model_;
  const std::unique_ptr<torch::optim::Optimizer> optimizer_;
  const std::shared_ptr<sharding::LossScaler> scaler_;
  std::optional<sharding::MasterParameters> masters_;  ///< none where state stays as it is
  std::optional<sharding::MixedPrecisionSteps> steps_;
};

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
