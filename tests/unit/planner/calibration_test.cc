// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/planner/calibration.h"

#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"
#include "tests/unit/planner/profiles.h"

namespace smp::planner {
namespace {

/// Four processors of one host, whose links are slow enough to count.
Machines some_processors(double speed, double links) {
  return {.ranks_a_host = 4,
          .processors = 4,
          .device = {.name = "CPU",
                     .memory_bytes = std::int64_t{64} << 30,
                     .flops_32 = 1e11 * speed,
                     .bytes_per_second = 8e9 * speed,
                     .operation_seconds = 15e-6 / speed},
          .inside = {.bytes_per_second = 1e9 * links, .latency_seconds = 1e-4 / links}};
}

topology::Settings settings(std::vector<topology::Setting> entries) {
  return {.where = "test", .entries = std::move(entries)};
}

MeasuredRun run_on(const ModelProfile& model, const Machines& machines,
                   const topology::Settings& settings) {
  const Candidate candidate = make_candidate(model, machines, settings, 0);
  const Prediction one = predict(model, machines, candidate);
  return {.hosts = machines.hosts,
          .ranks_a_host = machines.ranks_a_host,
          .settings = settings,
          .batch = model.batch,
          .step_seconds = one.times.step(),
          .times = one.times};
}

TEST(Calibration, FindsTheSpeedsThatARunHad) {
  const Machines real = some_processors(0.3, 0.5);
  ModelProfile model = profile_of({.elements = 20'000'000, .flops = 1e10});
  const MeasuredRun run = run_on(model, real, settings({{"ddp", true}}));
  Machines guessed = some_processors(1, 1);

  const Calibration found = calibrate(model, guessed, run);

  EXPECT_NEAR(found.device_speed, 0.3, 0.003);
  EXPECT_NEAR(found.link_speed, 0.5, 0.005);
  EXPECT_NEAR(guessed.device.flops_32, real.device.flops_32, 0.01 * real.device.flops_32);
  const auto pipeline =
      settings({{"pipeline_parallel_degree", std::int64_t{4}}, {"microbatches", std::int64_t{4}}});
  const double expected = run_on(model, real, pipeline).step_seconds;
  EXPECT_NEAR(run_on(model, guessed, pipeline).step_seconds, expected, 0.01 * expected);
}

TEST(Calibration, WhatIsInNoPartOfTheStepMakesAllOfItLonger) {
  ModelProfile model = profile_of({});
  Machines machines = some_processors(1, 1);
  const auto pipeline =
      settings({{"pipeline_parallel_degree", std::int64_t{4}}, {"microbatches", std::int64_t{4}}});
  MeasuredRun run = run_on(model, machines, pipeline);
  run.step_seconds *= 2;

  const Calibration found = calibrate(model, machines, run);

  EXPECT_NEAR(found.device_speed, 0.5, 1e-3);
  EXPECT_NEAR(run_on(model, machines, pipeline).step_seconds, run.step_seconds,
              1e-3 * run.step_seconds);
}

TEST(Calibration, OfGpusTheStepAloneCounts) {
  ModelProfile model = profile_of({});
  Machines machines = machines_of("g5.12xlarge", 1);
  MeasuredRun run = run_on(model, machines, settings({{"ddp", true}}));
  run.times = {};
  run.step_seconds *= 1.5;

  const Calibration found = calibrate(model, machines, run);

  EXPECT_NEAR(found.device_speed, 1 / 1.5, 1e-3);
  EXPECT_NEAR(found.link_speed, 1 / 1.5, 1e-3);
}

TEST(Calibration, ActivationsAreThoseOfTheRunWhereNothingIsRecomputed) {
  ModelProfile model = profile_of({});
  Machines machines = some_processors(1, 1);
  MeasuredRun run = run_on(model, machines, settings({{"ddp", true}}));
  const ModelProfile before = model;
  run.activation_bytes = 1.25 * predict(model, machines, {}).memory.activations;

  const Calibration found = calibrate(model, machines, run);

  EXPECT_NEAR(found.activations, 1.25, 1e-3);
  const Recomputation& blocks = model.recomputations[1];
  EXPECT_EQ(blocks.kept_bytes[1], before.recomputations[1].kept_bytes[1]);
  EXPECT_NEAR(static_cast<double>(blocks.once_bytes),
              1.25 * static_cast<double>(before.recomputations[1].once_bytes), 1e6);
}

TEST(Calibration, ARunOfSomethingElseIsRefused) {
  ModelProfile model = profile_of({});
  Machines machines = some_processors(1, 1);
  const MeasuredRun run = run_on(model, machines, settings({{"ddp", true}}));

  MeasuredRun other = run;
  other.batch = 3;
  EXPECT_THROW(calibrate(model, machines, other), ConfigError);
  other = run;
  other.step_seconds *= 1000;
  EXPECT_THROW(calibrate(model, machines, other), ConfigError);
  other = run;
  other.hosts = 2;  // nothing is known between hosts
  EXPECT_THROW(calibrate(model, machines, other), ConfigError);
}

}  // namespace
}  // namespace smp::planner
