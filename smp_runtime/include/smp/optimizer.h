// SPDX-License-Identifier: Apache-2.0
// The optimizer of a model over several ranks: 32-bit masters, a loss scale, clipping, state that
// is shared by ranks.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <utility>

#include "smp/model.h"
#include <torch/optim/optimizer.h>

namespace smp {

/// Wraps an optimizer of torch::optim that was made from DistributedModel::parameters(). With bf16,
/// fp16, shard_optimizer_state or sharded data parallelism it steps 32-bit masters of this rank's
/// part instead, and modules see what they are rounded to. Called by all ranks alike, from the
/// thread that made the session.
class DistributedOptimizer {
 public:
  /// The factor of the loss, in fp16 alone: see "Mixed Precision Training" (arXiv:1710.03740).
  struct LossScale {
    double scale = 4294967296.0;  ///< at the beginning
    bool dynamic = true;          ///< by `factor` down after an overflow, up after `window` steps
    double factor = 2.0;          ///< greater than 1
    std::int64_t window = 1000;   ///< steps without an overflow
    double least = 1.0;           ///< `scale` never falls below it
  };

  /// Throws ConfigError for parameters that are not of this rank's units, LBFGS, and values that
  /// are no loss scale; with masters also for an optimizer that has state already, and a model that
  /// has another DistributedOptimizer.
  DistributedOptimizer(DistributedModel& model, std::unique_ptr<torch::optim::Optimizer> optimizer,
                       LossScale scale);
  /// The same with an optimizer by value.
  template <std::derived_from<torch::optim::Optimizer> Optimizer>
  DistributedOptimizer(DistributedModel& model, Optimizer optimizer, LossScale scale)
      : DistributedOptimizer(model, std::make_unique<Optimizer>(std::move(optimizer)), scale) {}
  /// The same with the default loss scale.
  template <std::derived_from<torch::optim::Optimizer> Optimizer>
  DistributedOptimizer(DistributedModel& model, Optimizer optimizer)
      : DistributedOptimizer(model, std::move(optimizer), LossScale()) {}
  /// An optimizer that was moved from may only be assigned to or destroyed.
  DistributedOptimizer(DistributedOptimizer&&) noexcept;
  /// Likewise; the optimizer that was here is destroyed.
  DistributedOptimizer& operator=(DistributedOptimizer&&) noexcept;
  /// Drops the masters; the model may have another optimizer then.
  ~DistributedOptimizer();

  /// Drops the gradients of all parameters of this rank.
  void zero_grad();
  /// Updates the parameters of this rank, clipped to sdp_gradient_clipping with sharded data
  /// parallelism. Throws UserCodeError, which names a parameter, before any is updated, where there
  /// are masters and a gradient is not finite; in fp16 the step is skipped instead, on all ranks.
  void step();
  /// Clips the gradients of the optimizer's parameters by their norm over all ranks of the model,
  /// between the model's step and step().
  /// Returns that norm, -1 after an overflow. `norm_type` above 0; infinite for the largest
  /// element. Collective.
  double clip_gradients(double max_norm, double norm_type = 2.0);

  [[nodiscard]] bool overflow() const;      ///< whether the last step was skipped for one
  [[nodiscard]] double loss_scale() const;  ///< 1 without fp16
  /// What was wrapped, for instance to set a learning rate; its groups hold what is stepped.
  [[nodiscard]] torch::optim::Optimizer& wrapped();

  /// @cond OF_THE_LIBRARY
  class Core;
  [[nodiscard]] const std::shared_ptr<Core>& core() const { return core_; }
  /// @endcond

 private:
  std::shared_ptr<Core> core_;
};

}  // namespace smp
