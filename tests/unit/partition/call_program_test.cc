// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/call_program.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/partition/model_trees.h"

namespace smp::partition {
namespace {

using schedule::Schedule;
using schedule::Simulation;
using testing::ElementsAre;

TEST(CallProgram, EachRemoteCallIsARequestAndAResponse) {
  ModuleTree tree;
  tree.add_module({.name = "", .time_ns = 1});
  const int list = tree.add_module({.name = "list", .called = false}, 0);
  tree.add_module({.name = "list.0", .time_ns = 10, .input_bytes = 5, .output_bytes = 6}, list);
  const int inner = tree.add_module(
      {.name = "list.1", .time_ns = 20, .input_bytes = 7, .output_bytes = 8, .calls = 2}, list);
  tree.add_module({.name = "list.1.a", .time_ns = 40, .input_bytes = 1, .output_bytes = 1}, inner);
  tree.add_module({.name = "tail", .time_ns = 80}, 0);

  const CallProgram program = make_call_program(tree, {0, 0, 0, 1, 2, 0});

  std::vector<int> devices;
  std::vector<int> depths;
  std::vector<std::int64_t> work;
  for (const auto& run : program.runs) {
    devices.push_back(run.device);
    depths.push_back(run.depth);
    work.push_back(run.work_ns);
  }
  EXPECT_THAT(devices, ElementsAre(0, 1, 2, 1, 0));
  EXPECT_THAT(depths, ElementsAre(0, 1, 2, 1, 0));
  EXPECT_THAT(work, ElementsAre(11, 20, 40, 0, 80));
  EXPECT_EQ(program.messages(), 6) << "list.1 is called twice, list.1.a once";
  EXPECT_EQ(program.bytes(), 2 * (7 + 8 + 1 + 1));
}

TEST(CallProgram, ASequentialPassesResultsOn) {
  ModuleTree tree;
  tree.add_module({.name = ""});
  const int row = tree.add_module({.name = "row", .time_ns = 1, .passes_on = true}, 0);
  for (const char* name : {"row.0", "row.1", "row.2", "row.3"}) {
    tree.add_module({.name = name, .time_ns = 10, .input_bytes = 5, .output_bytes = 5}, row);
  }
  tree.add_module({.name = "tail", .time_ns = 80}, 0);

  const CallProgram program = make_call_program(tree, {0, 0, 0, 1, 1, 2, 0});

  std::vector<int> devices;
  std::vector<std::int64_t> work;
  for (const auto& run : program.runs) {
    devices.push_back(run.device);
    work.push_back(run.work_ns);
  }
  EXPECT_THAT(devices, ElementsAre(0, 1, 2, 0)) << "not over its own device";
  EXPECT_THAT(work, ElementsAre(11, 20, 10, 80));
  EXPECT_EQ(program.messages(), 3);
  EXPECT_EQ(program.bytes(), 2 * 3 * 5);
}

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

CallProgram recomputed(CallProgram program) {
  for (auto& run : program.runs) run.recompute_ns = run.work_ns;
  return program;
}

TEST(StepPrediction, ARecomputedForwardBelongsToTheFirstPartOfTheBackward) {
  const CallProgram program = recomputed(pipeline_of(2, 100));
  const StepModel model = model_of(2, 4, Schedule::kZeroBubble);

  const Simulation step = predict_step(program, 2, model);

  // The last rank goes forward, recomputes and goes back for 300, and has left 100 for later, by
  // when the first one can go back, too.
  const auto& first = step.begun[0];
  ASSERT_GE(first.size(), 3U);
  EXPECT_EQ(first[2].begin, 100 + 100 + 200);
  EXPECT_EQ(step.busy, std::vector<std::int64_t>(2, 2 * 400));
}

TEST(StepPrediction, WorkThatKeepsRecomputedActivationsIsDoneBeforeTheNextBackward) {
  const CallProgram program = recomputed(pipeline_of(4, 100));
  const auto longest_queue = [&](double memory) {
    StepModel model = model_of(8, 10, Schedule::kZeroBubble);
    model.shape.memory = memory;
    const Simulation step = predict_step(program, 4, model);
    int most = 0;
    for (const auto& begun : step.begun) {
      int queue = 0;
      for (const auto& run : begun) {
        const bool is_backward = run.run >= program.runs.size();
        if (is_backward) queue += run.is_deferred ? -1 : 1;
        most = std::max(most, queue);
      }
    }
    return most;
  };

  EXPECT_EQ(longest_queue(1), 1);
  EXPECT_EQ(longest_queue(2), 2);
}

TEST(StepPrediction, ARecomputedForwardTakesItsTimeInAnySchedule) {
  for (const Schedule schedule : {Schedule::kInterleaved, Schedule::kSimple}) {
    const Simulation step =
        predict_step(recomputed(pipeline_of(1, 100)), 1, model_of(4, 4, schedule));

    EXPECT_EQ(step.length, 4 * 400);
  }
}

TEST(StepPrediction, LongProgramsAreSimulatedInPart) {
  CallProgram program;
  for (int i = 0; i < 10'000; ++i) program.runs.push_back({.device = i % 2, .work_ns = 1});

  const Simulation step = predict_step(program, 2, model_of(64, 4));

  EXPECT_EQ(step.busy[0], 10 * 3 * 5000);
}

}  // namespace

}  // namespace smp::partition
