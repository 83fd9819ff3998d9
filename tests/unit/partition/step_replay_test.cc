// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/step_replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/partition/auto_settings.h"
#include "tests/unit/partition/model_trees.h"

namespace smp::partition {
namespace {

using testing::ElementsAre;

// Stages that call each other in a row; what comes back needs no work.
CallProgram pipeline_of(int stages, std::int64_t work) {
  CallProgram program;
  for (int i = 0; i < stages; ++i) {
    program.runs.push_back({.device = i, .depth = i, .work_ns = work, .messages = i > 0});
  }
  return program;
}

ReplayOptions options_of(int microbatches, int active,
                         pipeline::Schedule schedule = pipeline::Schedule::kInterleaved) {
  return {.shape = {.microbatches = microbatches,
                    .active_microbatches = active,
                    .simple = schedule == pipeline::Schedule::kSimple},
          .latency_ns = 0,
          .order = order_of(schedule)};
}

TEST(StepReplay, EqualStagesNeedTheIdealTime) {
  for (const auto schedule : {pipeline::Schedule::kInterleaved, pipeline::Schedule::kSimple}) {
    // A backward may find its device in a forward that has just begun.
    const double slack = schedule == pipeline::Schedule::kSimple ? 1.0 : 1.1;
    for (const int stages : {1, 2, 4, 8}) {
      for (const int microbatches : {1, 4, 8, 32}) {
        const Replay replay = replay_step(pipeline_of(stages, 100), stages,
                                          options_of(microbatches, stages + 2, schedule));

        const int ideal = (microbatches + stages - 1) * 300;
        EXPECT_GE(replay.step_ns, ideal);
        EXPECT_LE(static_cast<double>(replay.step_ns), slack * ideal)
            << stages << " stages, " << microbatches << " microbatches";
        EXPECT_EQ(replay.busy_ns, std::vector<std::int64_t>(stages, microbatches * 300));
        EXPECT_NEAR(replay.use(), 300.0 * microbatches / static_cast<double>(replay.step_ns), 1e-9);
      }
    }
  }
}

TEST(StepReplay, OneActiveMicrobatchRunsThemOneByOne) {
  EXPECT_EQ(replay_step(pipeline_of(4, 100), 4, options_of(8, 1)).step_ns, 8 * 4 * 300);
}

TEST(StepReplay, MessagesTakeLatencyAndBytes) {
  CallProgram program = pipeline_of(2, 100);
  program.runs[1].bytes = 3000;
  ReplayOptions options = options_of(1, 4);
  options.latency_ns = 7;
  options.bytes_per_us = 1000;

  EXPECT_EQ(replay_step(program, 2, options).step_ns, 2 * 300 + 2 * (7 + 3000));
}

TEST(StepReplay, RecomputationMakesTheBackwardLonger) {
  ReplayOptions options = options_of(4, 4);
  options.backward_per_forward = 3;

  EXPECT_EQ(replay_step(pipeline_of(1, 100), 1, options).step_ns, 4 * 400);
}

TEST(StepReplay, TheSlowestStageSetsThePace) {
  CallProgram program = pipeline_of(3, 100);
  program.runs[1].work_ns = 500;

  const Replay replay = replay_step(program, 3, options_of(16, 5));

  EXPECT_GE(replay.step_ns, 16 * 1500);
  EXPECT_LE(replay.step_ns, 16 * 1500 + 1000);
}

TEST(StepReplay, LongProgramsAreReplayedInPart) {
  CallProgram program;
  for (int i = 0; i < 10'000; ++i) program.runs.push_back({.device = i % 2, .work_ns = 1});

  const Replay replay = replay_step(program, 2, options_of(64, 4));

  EXPECT_EQ(replay.microbatches, 10);
}

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

}  // namespace
}  // namespace smp::partition
