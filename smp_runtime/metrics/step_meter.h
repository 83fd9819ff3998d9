// SPDX-License-Identifier: Apache-2.0
// Progress of a job's steps, told by its first rank: a line for people, reports for other programs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "smp_runtime/metrics/outputs/metric_outputs.h"
#include "smp_runtime/metrics/outputs/step_report.h"
#include "smp_runtime/metrics/replica_loss.h"
#include "smp_runtime/record/recorder.h"
#include "smp_runtime/record/step_shares.h"

namespace smp::metrics {

/// The pipeline engine's account of a step.
struct EngineUse {
  std::optional<record::StepShares> pipeline;  ///< a GPU is not done yet; none of the first step
  std::int64_t messages_sent = 0;
  std::int64_t bytes_sent = 0;
};

/// Basis of the operations of a step, as the definition of model FLOPs utilization counts them
/// (Chowdhery et al. 2022, PaLM, appendix B): a backward counts as two forwards, and recomputation
/// does not.
struct FlopsOptions {
  std::int64_t microbatches = 1;  ///< of a step, of all replicas
  int ranks = 1;                  ///< of the job, each with a device
  std::optional<double> peak;     ///< of a device, a second
};

/// A step lasts from the end of the step before it, the first one from its own begin; what of that
/// time is spent neither in a step nor in an optimizer counts as waiting for data.
/// One thread at a time.
class StepMeter {
 public:
  using Ledger = std::function<MemoryLedger()>;
  using Clock = std::function<double()>;  ///< [s]

  struct Options {
    int replicas = 1;       ///< batches that the job takes at a time, each as large as this rank's
    bool pipeline = false;  ///< the model has several partitions
    bool progress = true;   ///< stderr gets a line: a terminal one that is rewritten each step
    MetricOutputs outputs = {};
    std::optional<FlopsOptions> flops = {};  ///< empty: nobody counts operations
    /// [s] between two lines where they stay, and two reports to most outputs.
    double interval = 1.0;
    Clock clock = {};  ///< of a test; else the steady one
  };

  /// `ledger` says what the model's state takes here; the last two may be null.
  StepMeter(Options options, Ledger ledger, std::shared_ptr<ReplicaLoss> replica_loss,
            std::shared_ptr<record::Recorder> recorder);
  ~StepMeter();
  StepMeter(const StepMeter&) = delete;
  StepMeter& operator=(const StepMeter&) = delete;

  /// Sets the number of training steps of the job.
  void set_total(std::int64_t steps) { total_ = steps; }
  void set_interval(double seconds) { options_.interval = seconds; }
  [[nodiscard]] int replicas() const { return options_.replicas; }
  [[nodiscard]] bool has_outputs() const { return !options_.outputs.empty(); }
  /// From now on reports have operations, once those of a forward are known.
  void count_flops(const FlopsOptions& options) { options_.flops = options; }
  /// Sets the operations of the forward of one microbatch.
  void set_forward_flops(std::int64_t flops) { forward_flops_ = flops; }

  void begin_step();
  /// `samples`: of this rank's batch. `loss`: of its step, a scalar, or undefined; on a GPU it is
  /// waited for in steps that are told.
  void end_step(const EngineUse& use, std::int64_t samples, const at::Tensor& loss, bool training);
  /// An optimizer's step has ended.
  void optimizer_stepped() { busy_until_ = clock_(); }
  /// Tells what is left and ends the line on a terminal. Nothing is told afterwards.
  void close();

 private:
  /// Steps without training that follow each other.
  struct Evaluation {
    std::int64_t steps = 0;
    std::int64_t samples = 0;
    at::Tensor loss;  ///< sum over the samples, where the loss is
    bool is_shown = false;
  };

  StepReport account(const EngineUse& use, std::int64_t samples, bool training, double now) const;
  std::optional<StepFlops> flops_of(double seconds, bool training) const;
  MeanLoss loss_of(const at::Tensor& own);
  void note_loss(const StepReport& report);
  void write(StepReport& report, bool due);
  [[nodiscard]] std::optional<double> seconds_left() const;
  void show_step(const StepReport& report);
  void show_evaluation();
  void end_evaluation();
  void show(const std::string& text);
  void end_line();

  Options options_;
  const Clock clock_;
  const Ledger ledger_;
  const std::shared_ptr<ReplicaLoss> replica_loss_;
  const std::shared_ptr<record::Recorder> recorder_;
  const bool on_terminal_;
  const int process_;  ///< a fork of it tells nothing

  std::optional<std::int64_t> total_;
  std::optional<std::int64_t> forward_flops_;
  std::int64_t steps_ = 0;
  bool loss_is_lost_ = false;  ///< NaN or infinite, and said so
  std::optional<Evaluation> evaluation_;
  std::optional<double> ended_;  ///< empty: what is before the first step is start-up
  double begun_ = 0;
  double busy_until_ = 0;
  double first_step_ended_ = 0;
  std::optional<double> last_line_;
  std::optional<double> last_output_;
  bool line_is_open_ = false;
};

/// Rank 0's, if the environment asks for a line or metrics; else null. Without FlopsOptions.
std::shared_ptr<StepMeter> make_step_meter(session::Session& session, StepMeter::Ledger ledger,
                                           std::shared_ptr<ReplicaLoss> replica_loss);

}  // namespace smp::metrics
