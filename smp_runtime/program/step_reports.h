// SPDX-License-Identifier: Apache-2.0
// What a program's steps tell: the live line, metrics, the rank's record.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "smp/unit.h"

#include "smp_runtime/metrics/replica_loss.h"
#include "smp_runtime/metrics/step_meter.h"
#include "smp_runtime/metrics/step_records.h"

namespace smp::program {

/// Of one rank. One thread at a time.
class StepReports {
 public:
  /// What the state of the model takes here, and what it would by arithmetic. [bytes]
  struct Memory {
    std::function<metrics::MemoryLedger()> ledger;
    std::function<std::int64_t()> formula;
    const void* owner = nullptr;
  };

  /// Collective over the job, whose groups have been opened.
  explicit StepReports(session::Session& session);
  /// Waits for the other ranks' last losses, unless an exception ends the process.
  ~StepReports();
  StepReports(const StepReports&) = delete;
  StepReports& operator=(const StepReports&) = delete;

  /// Of the model that was made last. `owner` tells it apart until forget_memory().
  void set_memory(const void* owner, Memory memory);
  void forget_memory(const void* owner);
  void set_total(std::int64_t steps);

  void begin_step();
  /// After gradients of a step were averaged over the replicas. `results`: what its body returned
  /// for the microbatches; their mean is the loss if each is one number. Does not wait.
  void averaged(const Tensors& results, at::Device device);
  void end_step(const metrics::EngineUse& use, std::int64_t samples, const Tensors& results,
                bool trained);
  void optimizer_stepped();
  /// See StepRecords::event().
  void event(std::string_view kind, std::string_view text);

 private:
  const std::shared_ptr<Memory> memory_ = std::make_shared<Memory>();
  std::shared_ptr<metrics::ReplicaLoss> replica_loss_;  ///< null where there is one loss at most
  std::shared_ptr<metrics::StepMeter> meter_;           ///< null where nobody asks
  std::unique_ptr<metrics::StepRecords> records_;       ///< null without a recorder
};

}  // namespace smp::program
