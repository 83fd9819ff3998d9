// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/predicted_step.h"

#include <algorithm>
#include <vector>

#include "smp_runtime/core/error.h"

namespace smp::partition {
namespace {

constexpr std::int64_t kMostRuns = 200'000;
constexpr std::int64_t kBackwardPerForward = 2;  // gradients of inputs, and of parameters

/// The forward runs, then the same ones back to the first.
std::vector<schedule::Run> runs_of(const CallProgram& program, const StepModel& model) {
  const auto message = [&](const Run& run) {
    return run.messages * model.link.latency_ns + run.bytes * 1000 / model.link.bytes_per_us;
  };
  std::vector<schedule::Run> runs;
  for (const Run& run : program.runs) {
    runs.push_back({.rank = run.device,
                    .depth = run.depth,
                    .work = run.work_ns,
                    .message = runs.empty() ? 0 : message(run)});
  }
  std::int64_t gradient = 0;  // the backward begins where the forward ended
  for (auto run = program.runs.rbegin(); run != program.runs.rend(); ++run) {
    runs.push_back({.rank = run->device,
                    .phase = schedule::Phase::kBackward,
                    .depth = run->depth,
                    .work = run->work_ns * kBackwardPerForward,
                    .message = gradient});
    gradient = message(*run);  // of what the run had begun with
  }
  return runs;
}

}  // namespace

schedule::Simulation predict_step(const CallProgram& program, int devices, const StepModel& model) {
  SMP_CHECK(!program.runs.empty() && devices >= 1 && model.link.bytes_per_us >= 1,
            "{} runs on {} devices", program.runs.size(), devices);
  const std::vector<schedule::Run> runs = runs_of(program, model);
  const auto affordable = kMostRuns / static_cast<std::int64_t>(runs.size());
  schedule::ScheduleShape shape = model.shape;
  shape.microbatches = std::min(shape.microbatches, std::max<std::int64_t>(2, affordable));
  return schedule::simulate_schedule(runs, shape, devices);
}

}  // namespace smp::partition
