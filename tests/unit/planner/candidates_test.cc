// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/planner/candidates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"
#include "tests/unit/planner/profiles.h"

namespace smp::planner {
namespace {

TEST(Candidates, AllOfThemFollowTheRulesAndDivideTheBatch) {
  const ModelProfile model = profile_of({.batch = 12});
  const Machines machines = machines_of("g5.12xlarge", 2);

  const auto candidates = make_candidates(model, machines, {});

  EXPECT_GT(candidates.size(), 100U);
  for (const Candidate& candidate : candidates) {
    const auto& config = candidate.config;
    EXPECT_NO_THROW(topology::validate_world(config, machines.ranks(), machines.ranks_a_host));
    EXPECT_EQ(12 % config.microbatches, 0);
    EXPECT_FALSE(config.pipeline_parallel_degree > 1 && config.sharded_data_parallel_degree > 1);
    EXPECT_EQ(config.tensor_parallel_degree, 1);  // nothing is marked
  }
}

TEST(Candidates, SettingsThatHoldAreInEachOfThem) {
  const SearchSpace space{
      .fixed = {.where = "job", .entries = {{"optimize", std::string("speed")}}}};

  for (const Candidate& candidate :
       make_candidates(profile_of({}), machines_of("g5.12xlarge", 1), space)) {
    EXPECT_EQ(candidate.config.optimize, "speed");
  }
}

TEST(Candidates, TensorRanksStayOnAHost) {
  ModelProfile model = profile_of({});
  model.tensor_degrees = {2, 4, 8};

  std::int64_t most = 1;
  for (const Candidate& candidate : make_candidates(model, machines_of("g5.12xlarge", 4), {})) {
    most = std::max(most, candidate.config.tensor_parallel_degree);
  }

  EXPECT_EQ(most, 4);
}

TEST(Candidates, OneThatRulesRefuseSaysWhy) {
  const topology::Settings settings{.where = "--explain",
                                    .entries = {{"microbatches", std::int64_t{5}}, {"ddp", true}}};
  try {
    make_candidate(profile_of({}), machines_of("g5.12xlarge", 1), settings, 0);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("does not divide the 16 samples"));
  }
}

}  // namespace
}  // namespace smp::planner
