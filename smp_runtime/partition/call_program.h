// SPDX-License-Identifier: Apache-2.0
// The forward of one microbatch under an assignment, as runs on devices and messages between them,
// and the time of a step that it predicts.
#pragma once

#include <cstdint>
#include <vector>

#include "smp_runtime/partition/module_tree.h"
#include "smp_runtime/schedule/simulation.h"

namespace smp::partition {

/// One stretch of work on one device, and the message that it begins with.
struct Run {
  int device = 0;
  int depth = 0;                  ///< of nested calls; the body of the step has 0
  std::int64_t work_ns = 0;       ///< forward
  std::int64_t recompute_ns = 0;  ///< of it, in the backward
  std::int64_t messages = 0;      ///< 0 for the first run only
  std::int64_t bytes = 0;
};

/// A call of a module on another device is a request there and a response back: the caller's next
/// work comes after the response. A module that passes results on sends its children's from one to
/// the next, and gets the last one. The backward is the same in reverse order.
struct CallProgram {
  std::vector<Run> runs;

  [[nodiscard]] std::int64_t messages() const;  ///< forward only
  [[nodiscard]] std::int64_t bytes() const;     ///< forward and backward
};

/// Work is that of `forward_times`. Modules run in tree order, each once; calls, bytes and times of
/// one that runs several times are taken together.
CallProgram make_call_program(const ModuleTree& tree, const std::vector<int>& device_of_node);

/// Assumed cost of a message between ranks.
struct LinkCost {
  std::int64_t latency_ns = 0;
  std::int64_t bytes_per_us = 1;
};
inline constexpr LinkCost kCpuLink{.latency_ns = 100'000, .bytes_per_us = 2'000};
inline constexpr LinkCost kGpuLink{.latency_ns = 20'000, .bytes_per_us = 50'000};

struct StepModel {
  schedule::ScheduleShape shape;
  LinkCost link = kCpuLink;
  /// By device, where they are not all on one: messages between two hosts take `between_hosts`.
  std::vector<int> host_of_device = {};
  LinkCost between_hosts = kCpuLink;
};

/// Time of a message that begins `run`, which comes from the device of the run before it.
[[nodiscard]] std::int64_t message_ns(const Run& before, const Run& run, const StepModel& model);

/// Microbatches that predict_step simulates: at most some 200,000 runs, and at least two
/// microbatches. Fewer than asked for where the program is long.
[[nodiscard]] std::int64_t simulated_microbatches(const CallProgram& program,
                                                  const schedule::ScheduleShape& shape);

/// Simulates the schedule that will run the step, in nanoseconds, of simulated_microbatches();
/// gradients of activations take as long as the forward, and so do those of parameters. A backward
/// that recomputes does so in its first part, and what it leaves for later keeps that.
[[nodiscard]] schedule::Simulation predict_step(const CallProgram& program, int devices,
                                                const StepModel& model);

}  // namespace smp::partition
