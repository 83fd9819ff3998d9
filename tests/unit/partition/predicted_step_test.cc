// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/predicted_step.h"

#include <gtest/gtest.h>

namespace smp::partition {
namespace {

using schedule::Schedule;
using schedule::Simulation;

// Stages that call each other in a row; what comes back needs no work.
CallProgram pipeline_of(int stages, std::int64_t work) {
  CallProgram program;
  for (int i = 0; i < stages; ++i) {
    program.runs.push_back({.device = i, .depth = i, .work_ns = work, .messages = i > 0});
  }
  return program;
}

StepModel model_of(int microbatches, int active, Schedule schedule = Schedule::kInterleaved) {
  return {
      .shape = {.microbatches = microbatches, .active_microbatches = active, .schedule = schedule},
      .link = {}};
}

TEST(StepPrediction, EqualStagesNeedTheIdealTime) {
  for (const Schedule schedule : {Schedule::kInterleaved, Schedule::kSimple}) {
    // A backward may find its device in a forward that has just begun.
    const double slack = schedule == Schedule::kSimple ? 1.0 : 1.1;
    for (const int stages : {1, 2, 4, 8}) {
      for (const int microbatches : {1, 4, 8, 32}) {
        const Simulation step = predict_step(pipeline_of(stages, 100), stages,
                                             model_of(microbatches, stages + 2, schedule));

        const int ideal = (microbatches + stages - 1) * 300;
        EXPECT_GE(step.length, ideal);
        EXPECT_LE(static_cast<double>(step.length), slack * ideal)
            << stages << " stages, " << microbatches << " microbatches";
        EXPECT_EQ(step.busy, std::vector<std::int64_t>(stages, microbatches * 300));
        EXPECT_NEAR(step.use(), 300.0 * microbatches / static_cast<double>(step.length), 1e-9);
      }
    }
  }
}

TEST(StepPrediction, OneActiveMicrobatchRunsThemOneByOne) {
  EXPECT_EQ(predict_step(pipeline_of(4, 100), 4, model_of(8, 1)).length, 8 * 4 * 300);
}

TEST(StepPrediction, MessagesTakeLatencyAndBytes) {
  CallProgram program = pipeline_of(2, 100);
  program.runs[1].bytes = 3000;
  StepModel model = model_of(1, 4);
  model.link = {.latency_ns = 7, .bytes_per_us = 1000};

  EXPECT_EQ(predict_step(program, 2, model).length, 2 * 300 + 2 * (7 + 3000));
}

TEST(StepPrediction, TheSlowestStageSetsThePace) {
  CallProgram program = pipeline_of(3, 100);
  program.runs[1].work_ns = 500;

  const Simulation step = predict_step(program, 3, model_of(16, 5));

  EXPECT_GE(step.length, 16 * 1500);
  EXPECT_LE(step.length, 16 * 1500 + 1000);
}

TEST(StepPrediction, LongProgramsAreSimulatedInPart) {
  CallProgram program;
  for (int i = 0; i < 10'000; ++i) program.runs.push_back({.device = i % 2, .work_ns = 1});

  const Simulation step = predict_step(program, 2, model_of(64, 4));

  EXPECT_EQ(step.busy[0], 10 * 3 * 5000);
}

}  // namespace
}  // namespace smp::partition
