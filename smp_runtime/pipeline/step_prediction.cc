// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/step_prediction.h"

#include <algorithm>
#include <vector>

#include "smp_runtime/core/error.h"
#include "smp_runtime/pipeline/schedule_simulation.h"

namespace smp::pipeline {
namespace {

constexpr std::int64_t kMostRuns = 200'000;

/// The forward runs, then the same ones back to the first.
std::vector<Run> runs_of(const partition::CallProgram& program, const partition::StepModel& model) {
  const auto message = [&](const partition::Run& run) {
    return run.messages * model.latency_ns + run.bytes * 1000 / model.bytes_per_us;
  };
  std::vector<Run> runs;
  for (const partition::Run& run : program.runs) {
    runs.push_back({.rank = run.device,
                    .depth = run.depth,
                    .work = run.work_ns,
                    .message = runs.empty() ? 0 : message(run)});
  }
  std::int64_t gradient = 0;  // the backward begins where the forward ended
  for (auto run = program.runs.rbegin(); run != program.runs.rend(); ++run) {
    runs.push_back({.rank = run->device,
                    .phase = Phase::kBackward,
                    .depth = run->depth,
                    .work = run->work_ns * model.backward_per_forward,
                    .message = gradient});
    gradient = message(*run);  // of what the run had begun with
  }
  return runs;
}

}  // namespace

partition::PredictedStep predict_step(const partition::CallProgram& program, int devices,
                                      const partition::StepModel& model) {
  SMP_CHECK(!program.runs.empty() && devices >= 1 && model.shape.microbatches >= 1 &&
                model.bytes_per_us >= 1,
            "{} runs on {} devices", program.runs.size(), devices);
  const std::vector<Run> runs = runs_of(program, model);
  const auto affordable = kMostRuns / static_cast<std::int64_t>(runs.size());
  const auto microbatches =
      std::min<std::int64_t>(model.shape.microbatches, std::max<std::int64_t>(2, affordable));
  Simulation simulation =
      simulate_schedule(runs, microbatches, std::max(1, model.shape.open()),
                        model.shape.simple ? Schedule::kSimple : Schedule::kInterleaved, devices);
  return {.step_ns = simulation.length,
          .busy_ns = std::move(simulation.busy),
          .microbatches = static_cast<int>(microbatches)};
}

}  // namespace smp::pipeline
