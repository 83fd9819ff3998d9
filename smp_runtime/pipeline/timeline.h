// SPDX-License-Identifier: Apache-2.0
// What a rank did when during a step: sums for the metrics, spans for a picture.
//
// The picture is a file in Chrome's Trace Event Format, which https://ui.perfetto.dev opens: an
// array with one event a line, whose closing bracket the format lets us leave out. The ranks of a
// host append to one file, a lane each; lines of several hosts may be put into one file.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "smp_runtime/pipeline/device_clock.h"
#include "smp_runtime/pipeline/envelope.h"

namespace smp::pipeline {

/// How a rank's host spent a step. Where a device computes, it starts that.
struct StepUse {
  std::chrono::nanoseconds total{0};
  std::chrono::nanoseconds computed{0};  ///< running modules, the step's body, their backwards
  int64_t runs = 0;                      ///< in which it computed
  std::chrono::nanoseconds waited{0};    ///< for messages
  int64_t messages_sent = 0;
  int64_t bytes_sent = 0;  ///< tensors, and bodies that travelled; no headers of the wire
};

struct TimelineOptions {
  std::string file;  ///< empty: sums only
  int lane = 0;      ///< the rank in the world
  int group = 0;     ///< tells the pipeline groups that share the file apart
  std::shared_ptr<DeviceClock> device_clock;  ///< of the device that computes; null: the host does
};

/// Belongs to the holder of the run token, as the scheduler does.
class Timeline {
 public:
  /// Clocks of several hosts are compared, so it is the system's.
  using Clock = std::chrono::system_clock;

  explicit Timeline(TimelineOptions options);

  /// Whether there is a file; without one names are not asked for.
  [[nodiscard]] bool draws() const { return !options_.file.empty(); }

  void begin_step(int64_t step);
  /// What is next may be a run.
  void begin_run();
  /// A run of a task, since then, has paused or ended.
  void ran(const TaskKey& key, std::string_view name);
  /// Of this step, or of the last one that a device has done; 0 before the first one.
  [[nodiscard]] std::chrono::nanoseconds mean_run() const;
  /// Share of the last step spent computing, 0 to 1; where a device computes, of the last one that
  /// it has done. None before the first one.
  [[nodiscard]] std::optional<double> computed_share() const;
  void waited(Clock::time_point begin, Clock::time_point end);
  void sent(const Envelope& envelope);
  void received(const Envelope& envelope);
  /// Appends the step's spans to the file, in one write. A file that cannot be written is named in
  /// one warning, and nothing more is recorded: a picture is not worth a job.
  StepUse end_step();

 private:
  void add_span(std::string_view category, std::string_view name, Clock::time_point begin,
                Clock::time_point end, int64_t microbatch);
  void add_transfer(char phase, const Envelope& envelope);
  void append_to_file();

  TimelineOptions options_;
  int64_t step_ = 0;
  Clock::time_point begun_;
  Clock::time_point run_begun_;
  StepUse use_;
  std::optional<StepUse> last_;
  std::string events_;  ///< lines that are not in the file yet
};

}  // namespace smp::pipeline
