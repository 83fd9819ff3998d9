// SPDX-License-Identifier: Apache-2.0
// The steps of optimizers over the masters of one store: unscale, look for overflows, clip, update,
// publish.
#pragma once

#include <optional>
#include <vector>

#include "smp_runtime/sharding/master_parameters.h"
#include "smp_runtime/sharding/torch_free/loss_scaler.h"

namespace smp::sharding {

/// Gradients are read once to be measured. The loss scale and clipping make one factor, which is
/// multiplied in once: here, or by an optimizer whose own kernel can. Several optimizers that step
/// with the same gradients are treated alike: their norm is that of all, an overflow skips them
/// all, and the loss scale counts one update. All ranks that share a copy of the model make the
/// same calls; with a loss scale all ranks of the job. What this is given must outlive it. One
/// thread at a time.
class MixedPrecisionSteps {
 public:
  struct Options {
    bool scaled = false;  ///< fp16: the loss is multiplied by the scale, overflows skip a step
    double clipping = 0;  ///< 2-norm that begin_update() clips to; 0 for none
  };

  MixedPrecisionSteps(session::Session& session, ParameterStore& store, LossScaler& scaler,
                      Options options);

  /// One more optimizer steps over the store. Its masters show the gradients that are there.
  void add(MasterParameters& masters);
  /// An optimizer steps no more; `masters` may go.
  void remove(const MasterParameters& masters);

  /// A step is about to add to the gradients that are there, if an update has left any: they are
  /// those of the loss times its scale again.
  void begin_accumulation();
  /// The store has new gradients, or has dropped them: all masters show that.
  void begin();
  /// Gradients become those of the loss itself, once. Throws UserCodeError, which names a
  /// parameter, for gradients that are not finite; with a loss scale overflow() is true then, on
  /// all ranks.
  void unscale();
  /// Clips gradients by their norm over the whole model, and returns that norm; -1 after an
  /// overflow. Throws as unscale().
  double clip(double max_norm, double norm_type);

  /// Returns the factor by which gradients are still to be multiplied in the update that follows.
  /// Empty where there may be no update: no gradients, or an overflow, which the loss scale hears
  /// of. Throws as unscale(), and UserCodeError within an accumulation.
  std::optional<double> begin_update();
  /// Multiplies that factor in, where the optimizer does not.
  void apply_factor();
  /// The masters were changed: modules see them. Collective over the shard group.
  void end_update();

  [[nodiscard]] double loss_scale() const { return scaler_.scale(); }
  [[nodiscard]] bool overflow() const { return overflow_; }
  /// 2-norm of the last gradients, before clipping; -1 after an overflow.
  [[nodiscard]] const std::optional<double>& last_norm() const { return last_norm_; }

 private:
  void measure();
  void clip_once();
  void count_update();
  [[nodiscard]] double norm(double norm_type);
  [[nodiscard]] bool agree(bool overflow);
  [[noreturn]] void throw_not_finite();

  session::Session& session_;
  ParameterStore& store_;
  std::vector<MasterParameters*> all_;
  LossScaler& scaler_;
  const Options options_;
  bool overflow_ = false;
  // State of the gradients that are there:
  bool measured_ = false;
  bool clipped_ = false;            ///< to the norm of the options
  bool counted_ = false;            ///< the loss scale heard of their update
  double factor_ = 1.0;             ///< what gradients are still to be multiplied by
  std::optional<double> norm_now_;  ///< their 2-norm after what was done to them; empty: not known
  std::optional<double> last_norm_;
};

}  // namespace smp::sharding
