// SPDX-License-Identifier: Apache-2.0
// State behind a smp::DistributedOptimizer: torch's optimizer and, where state is sharded or
// 16-bit, the masters that it steps.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "smp/optimizer.h"

#include "smp_runtime/api/model_core.h"
#include "smp_runtime/sharding/mixed_precision_steps.h"

namespace smp {

class DistributedOptimizer::Core {
 public:
  Core(std::shared_ptr<DistributedModel::Core> model,
       std::unique_ptr<torch::optim::Optimizer> optimizer, const LossScale& scale);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  void zero_grad();
  void step();
  double clip(double max_norm, double norm_type);
  [[nodiscard]] bool overflow() const { return steps_ && steps_->overflow(); }
  [[nodiscard]] double loss_scale() const { return scaler_.scale(); }
  torch::optim::Optimizer& wrapped() { return *optimizer_; }

  // --- For checkpoints ---

  /// The model's parameters that it was made from, by group.
  [[nodiscard]] const std::vector<std::vector<at::Tensor>>& groups() const { return groups_; }
  /// Null where the parameters themselves are stepped.
  [[nodiscard]] const sharding::MasterParameters* masters() const {
    return masters_ ? &*masters_ : nullptr;
  }
  [[nodiscard]] sharding::LossScaler& scaler() { return scaler_; }

 private:
  [[nodiscard]] session::Session& session() const { return model_->session().session(); }
  [[nodiscard]] sharding::LossScaleOptions scale_of(const LossScale& scale) const;
  void refuse_unfit() const;
  void take_masters();
  [[nodiscard]] std::int64_t state_bytes();
  void update();

  const std::shared_ptr<DistributedModel::Core> model_;
  const std::unique_ptr<torch::optim::Optimizer> optimizer_;
  sharding::LossScaler scaler_;
  std::vector<std::vector<at::Tensor>> groups_;
  std::optional<sharding::MasterParameters> masters_;  ///< none where state stays as it is
  std::optional<sharding::MixedPrecisionSteps> steps_;
};

}  // namespace smp
