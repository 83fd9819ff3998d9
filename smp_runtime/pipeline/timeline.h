// SPDX-License-Identifier: Apache-2.0
// Timeline of a rank of a pipeline during a step: sums for the schedule and the metrics, spans and
// transfers for the session's recorder.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "smp_runtime/pipeline/envelope.h"
#include "smp_runtime/record/recorder.h"
#include "smp_runtime/record/step_shares.h"
#include "smp_runtime/schedule/task_order.h"

namespace smp::pipeline {

/// A device's use of the time of a step.
struct DeviceUse {
  std::chrono::nanoseconds total{0};
  std::chrono::nanoseconds computed{0};  ///< in runs
  int64_t runs = 0;
};

/// Times of a step's runs on the device, where the host only starts kernels and goes on. Belongs to
/// the holder of the run token, as the scheduler does. Nothing here waits.
class DeviceClock {
 public:
  virtual ~DeviceClock() = default;
  /// Forgets a step that was begun and has not ended.
  virtual void begin_step() = 0;
  virtual void begin_run() = 0;
  /// Ends the run that was begun last.
  virtual void end_run() = 0;
  virtual void end_step() = 0;
  /// Use of the last step that the device has done; none before the first.
  [[nodiscard]] virtual std::optional<DeviceUse> last() = 0;
};

using record::StepShares;
using schedule::TaskKey;

/// A host's use of the time of a step. Where a device computes, the host only starts that.
struct StepUse {
  std::chrono::nanoseconds total{0};
  std::chrono::nanoseconds computed{0};  ///< running modules, the step's body, their backwards
  std::chrono::nanoseconds forward{0};   ///< of that
  std::chrono::nanoseconds deferred{0};  ///< of that: work that backwards have left for later
  int64_t runs = 0;                      ///< in which it computed, but for deferred work
  std::chrono::nanoseconds waited{0};    ///< for messages
  int64_t messages_sent = 0;
  int64_t bytes_sent = 0;  ///< tensors, and bodies that travelled; no headers of the wire
};

struct TimelineOptions {
  std::shared_ptr<record::Recorder> recorder;  ///< null: sums only
  std::vector<int> ranks;  ///< of the pipeline group in the job; the first tells groups apart
  std::shared_ptr<DeviceClock> device_clock;  ///< of the device that computes; null: the host does
};

/// Belongs to the holder of the run token, as the scheduler does.
class Timeline {
 public:
  using Clock = record::Clock;

  explicit Timeline(TimelineOptions options);

  /// True if names of runs are worth making.
  [[nodiscard]] bool draws() const { return options_.recorder && options_.recorder->draws(); }

  void begin_step(int64_t step);
  /// Marks the beginning of a possible run.
  void begin_run();
  /// A run of a task, since then, has paused or ended. Returns how long it took.
  Clock::duration ran(const TaskKey& key, std::string_view name);
  /// Deferred work has been done since then. Returns how long that took.
  Clock::duration ran_deferred();
  /// Mean time of a run in this step, or in the last one that a device has done; 0 before the first
  /// one.
  [[nodiscard]] std::chrono::nanoseconds mean_run() const;
  /// Shares of the last step; where a device computes, of the last one that it has done. None
  /// before the first one.
  [[nodiscard]] std::optional<StepShares> shares() const;
  void waited(Clock::time_point begin, Clock::time_point end);
  void sent(int destination, const Envelope& envelope);
  void received(const Envelope& envelope);
  StepUse end_step();

 private:
  void add(record::Activity activity, std::string_view name, Clock::time_point begin,
           Clock::time_point end, int64_t microbatch);
  void add_transfer(bool begins, const Envelope& envelope);

  TimelineOptions options_;
  int64_t step_ = 0;
  Clock::time_point begun_;
  Clock::time_point run_begun_;
  StepUse use_;
  std::optional<StepUse> last_;
};

}  // namespace smp::pipeline
