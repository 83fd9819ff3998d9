// SPDX-License-Identifier: Apache-2.0
// Reports of a rank's steps: the live line, metrics, the rank's record.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "smp_runtime/metrics/replica_loss.h"
#include "smp_runtime/metrics/step_meter.h"
#include "smp_runtime/metrics/step_records.h"

namespace smp::metrics {

/// One rank's reports. Does nothing where nobody asks for them. One thread at a time.
class StepReports {
 public:
  /// Memory that the state of the model takes here, and that it would take by arithmetic; 0: no
  /// formula. [bytes]
  struct Memory {
    StepMeter::Ledger ledger;
    std::function<std::int64_t()> formula;
    const void* owner = nullptr;
  };

  /// Collective over the job, whose groups have been opened.
  StepReports(session::Session& session, const JobFacts& facts);

  /// Sets the memory of the model that was made last. `owner` identifies that model until
  /// forget_memory().
  void set_memory(const void* owner, Memory memory);
  void forget_memory(const void* owner);
  void set_total(std::int64_t steps);
  /// [s] between two lines where they stay, and two reports to most outputs; 1 at first.
  void set_interval(double seconds);
  /// From now on reports have floating-point operations, once those of a forward are known, of
  /// devices that do `peak` a second. Returns whether anybody asks for them. Not with tensor
  /// parallelism, where a rank sees its slices of some modules and all of others; on the CPU only
  /// metrics have them.
  [[nodiscard]] bool count_flops(bool on_gpu, std::optional<double> peak);
  /// Sets the operations of the forward of one microbatch.
  void set_forward_flops(std::int64_t flops);

  /// True if averaged() and end_step() have a use for the loss.
  [[nodiscard]] bool want_loss() const { return replica_loss_ || meter_; }
  void begin_step();
  /// After gradients of a step were averaged over the replicas. `loss` is that of this rank's step,
  /// a scalar, undefined where it has none, and travels from `device`. Does not wait.
  void averaged(const at::Tensor& loss, at::Device device);
  /// `samples`: of this rank's batch. `loss` as above; on a GPU it is waited for in steps that are
  /// told.
  void end_step(const EngineUse& use, std::int64_t samples, const at::Tensor& loss, bool trained);
  void begin_optimizer();
  void end_optimizer();
  /// See StepRecords::event().
  void event(std::string_view kind, std::string_view text);

  /// Waits for the other ranks' last losses: a rank that ends first would take its part of the
  /// exchange along.
  void await_last_loss();
  /// Tells what is left. Nothing is told or recorded afterwards.
  void close();

 private:
  session::Session& session_;
  const std::shared_ptr<Memory> memory_ = std::make_shared<Memory>();
  std::shared_ptr<ReplicaLoss> replica_loss_;  ///< null where there is one loss at most
  std::shared_ptr<StepMeter> meter_;           ///< null but on the first rank
  std::unique_ptr<StepRecords> records_;       ///< null without a recorder
};

/// Around what an optimizer does, the exchanges about it among it.
class OptimizerTime {
 public:
  explicit OptimizerTime(StepReports& reports) : reports_(reports) { reports_.begin_optimizer(); }
  ~OptimizerTime() { reports_.end_optimizer(); }
  OptimizerTime(const OptimizerTime&) = delete;
  OptimizerTime& operator=(const OptimizerTime&) = delete;

 private:
  StepReports& reports_;
};

}  // namespace smp::metrics
