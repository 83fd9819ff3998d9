// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/planner/search.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/planner/cost_tree.h"
#include "tests/unit/planner/profiles.h"

namespace smp::planner {
namespace {

TEST(Search, FindsTheFastestOfAllThatFit) {
  const ModelProfile model = profile_of({.elements = 30'000'000});
  const Machines machines = machines_of("g5.12xlarge", 2);

  const Plan found = plan(model, machines, {});

  double fastest = 0;
  for (const Candidate& candidate : make_candidates(model, machines, {})) {
    const Prediction one = predict(model, machines, candidate);
    if (one.fits) fastest = std::max(fastest, one.samples_per_second());
  }
  ASSERT_EQ(found.best.size(), 10U);
  EXPECT_GE(found.best.front().prediction.samples_per_second(), 0.99 * fastest);
  EXPECT_LT(found.examined.size(), static_cast<std::size_t>(found.candidates));
}

TEST(Search, PartsOfAStepAddUpAndItsBoundIsNeverBelow) {
  const ModelProfile model = profile_of({});
  const Machines machines = machines_of("g4dn.12xlarge", 1);

  for (const Candidate& candidate : make_candidates(model, machines, {})) {
    const Prediction one = predict(model, machines, candidate);
    const double work = microbatch_seconds(model, machines, candidate);

    EXPECT_GT(one.times.computing, 0);
    EXPECT_GE(one.times.waiting, -1e-12);
    EXPECT_LE(one.samples_per_second(),
              kEstimateSlack * most_samples_per_second(model, machines, candidate, work));
    EXPECT_LE(least_needs(model, machines, candidate), 1.0001 * one.memory.total());
  }
}

TEST(Search, RecomputingTakesAThirdMoreAndKeepsLess) {
  const ModelProfile model = profile_of({});
  const Machines machines = machines_of("g5.xlarge", 1);

  const Prediction plain = predict(model, machines, {});
  const Prediction recomputed = predict(model, machines, {.recomputation = 1});

  const double work = recomputed.times.computing + recomputed.times.recomputing;
  EXPECT_NEAR(work / plain.times.computing, 4.0 / 3, 1e-2);
  EXPECT_LT(recomputed.memory.activations, plain.memory.activations);
}

TEST(Search, ALargerModelThanACardIsShardedOrCut) {
  // 16 bytes for each of 4e9 parameters: 60 GiB.
  const ModelProfile model = profile_of({.elements = 500'000'000});

  const Plan found = plan(model, machines_of("g5.12xlarge", 1), {});

  ASSERT_FALSE(found.best.empty());
  const auto& config = found.best.front().candidate.config;
  EXPECT_EQ(std::max(config.pipeline_parallel_degree, config.sharded_data_parallel_degree), 4);
}

TEST(Search, WhereNothingFitsTheLeastHostsAreNamed) {
  const ModelProfile model = profile_of({.elements = 500'000'000});
  const Machines machines = machines_of("g4dn.xlarge", 1);

  const Plan found = plan(model, machines, {});

  EXPECT_TRUE(found.best.empty());
  ASSERT_TRUE(found.hosts_needed.has_value());
  Machines more = machines;
  more.hosts = *found.hosts_needed;
  EXPECT_FALSE(plan(model, more, {}).best.empty());
  more.hosts = *found.hosts_needed - 1;
  EXPECT_TRUE(plan(model, more, {}).best.empty());
}

TEST(Search, SlowNetworksMakeItShardWithinHosts) {
  Machines machines = machines_of("p3.16xlarge", 8);  // 25 Gbit/s
  const ModelProfile model = profile_of({.elements = 1'000'000'000, .flops = 2e13});

  const Plan found = plan(model, machines, {.fixed = {}, .formats = {"fp16"}});

  // MiCS: where gradients accumulate, shards within a host are faster than over all 64 cards.
  const auto speed_with = [&](std::int64_t degree, std::int64_t microbatches, bool by_hosts) {
    const topology::Settings settings{.where = "test",
                                      .entries = {{"sharded_data_parallel_degree", degree},
                                                  {"microbatches", microbatches},
                                                  {"sdp_hierarchical_allgather", by_hosts},
                                                  {"ddp", true},
                                                  {"fp16", true}}};
    return predict(model, machines, make_candidate(model, machines, settings, 0))
        .samples_per_second();
  };
  EXPECT_GT(speed_with(8, 4, true), speed_with(64, 4, true));
  // The published rival gathers in one ring of all ranks, of which each unit pays all latencies.
  EXPECT_GT(speed_with(8, 1, true), speed_with(64, 1, false));
  EXPECT_FALSE(found.best.empty());
}

TEST(Search, RefusesWhatIsNoQuestion) {
  EXPECT_THROW(plan({}, machines_of("g5.xlarge", 1), {}), ConfigError);
  EXPECT_THROW(plan(profile_of({}), {}, {}), ConfigError);
  EXPECT_THROW(plan(profile_of({}), machines_of("g5.xlarge", 1), {}, 0), ConfigError);
}

}  // namespace
}  // namespace smp::planner
