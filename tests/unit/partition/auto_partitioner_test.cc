// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/auto_partitioner.h"

#include <algorithm>
#include <limits>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/partition/compat_partitioner.h"
#include "smp_runtime/partition/proposals.h"
#include "smp_runtime/partition/units.h"
#include "tests/unit/fuzz_rounds.h"
#include "tests/unit/partition/auto_settings.h"
#include "tests/unit/partition/model_corpus.h"

namespace smp::partition {
namespace {

using testing::HasSubstr;

// The definition, table by table: f(k, j) = min over i of max(f(k - 1, i), load(i, j)).
Cost contiguous_optimum(const ModuleTree& tree, int partitions, const AutoOptions& options) {
  const MemoryModel memory{.state_factor = options.state_factor,
                           .kept_activations = options.step.shape.in_flight()};
  const Units units = make_units(tree, options.memory_weight, memory);
  const int size = units.size();
  const int count = std::min(partitions, size);
  std::vector<Cost> before(size + 1, std::numeric_limits<Cost>::max());
  before[0] = 0;
  for (int k = 1; k <= count; ++k) {
    std::vector<Cost> here(size + 1, std::numeric_limits<Cost>::max());
    for (int j = k; j <= size; ++j) {
      Cost load = 0;
      for (int i = j - 1; i >= k - 1; --i) {
        load += units.list[i].load;
        here[j] = std::min(here[j], std::max(before[i], load));
      }
    }
    before = here;
  }
  return before[size];
}

std::set<int> used_partitions(const Assignment& assignment) {
  std::set<int> used;
  for (const auto& [name, partition] : assignment.partition_of) used.insert(partition);
  return used;
}

void expect_good(const ModuleTree& tree, int partitions, double memory_weight,
                 const std::string& where) {
  const AutoOptions options = auto_options(partitions, memory_weight);

  const AutoDecision decision = assign_auto(tree, partitions, options);

  const Cost optimum = contiguous_optimum(tree, partitions, options);
  EXPECT_EQ(decision.contiguous_load, optimum) << where;
  EXPECT_LE(decision.chosen.worst_load, optimum + optimum / 20) << where;
  EXPECT_NO_THROW(check_fits(decision.assignment, tree, partitions)) << where;
  EXPECT_EQ(decision.assignment.at(""), 0) << where;
  const int leaves = make_units(tree, memory_weight, {}).size();
  EXPECT_EQ(static_cast<int>(used_partitions(decision.assignment).size()),
            std::min(partitions, leaves))
      << where;
}

class AnyPartitions : public testing::TestWithParam<int> {};

TEST_P(AnyPartitions, KnownModelsAreWithinFivePercentOfTheContiguousOptimum) {
  for (const auto& [name, tree] : model_corpus()) {
    for (const double weight : {0.0, 0.2, 0.8, 1.0}) {
      expect_good(tree, GetParam(), weight, name + " by " + std::to_string(weight));
    }
  }
}

TEST_P(AnyPartitions, RandomTreesAreWithinFivePercentOfTheContiguousOptimum) {
  for (std::uint32_t seed = 0; seed < fuzz_rounds(300); ++seed) {
    const ModuleTree tree = random_tree(seed, 5 + static_cast<int>(seed) % 80, seed % 2 == 0);
    expect_good(tree, GetParam(), seed % 3 == 0 ? 0.2 : 0.8, "seed " + std::to_string(seed));
  }
}

TEST_P(AnyPartitions, TheDecisionDependsOnTheArgumentsOnly) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    const AutoOptions options = auto_options(GetParam(), 0.5);
    const auto one = assign_auto(random_tree(seed, 60, true), GetParam(), options);
    const auto other = assign_auto(random_tree(seed, 60, true), GetParam(), options);

    EXPECT_EQ(one.assignment, other.assignment);
    EXPECT_EQ(one.chosen.predicted_step_ns, other.chosen.predicted_step_ns);
  }
}

INSTANTIATE_TEST_SUITE_P(Partitions, AnyPartitions, testing::Values(1, 2, 3, 4, 8));

TEST(AssignAuto, TheRealOptimumIsNotBeaten) {
  // Compares with all assignments of the units, by predicted step.
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    const ModuleTree tree = random_tree(seed, 9, false);
    const AutoOptions options = auto_options(2, 0.2);
    const AutoDecision decision = assign_auto(tree, 2, options);
    const Units units = make_units(tree, 0.2, {.state_factor = 4, .kept_activations = 4});
    ASSERT_LE(units.size(), 14);

    Cost best = std::numeric_limits<Cost>::max();
    for (unsigned bits = 0; bits < 1U << units.size(); ++bits) {
      Cost load[2] = {};
      for (int i = 0; i < units.size(); ++i) load[(bits >> i) & 1U] += units.list[i].load;
      best = std::min(best, std::max(load[0], load[1]));
    }

    EXPECT_GE(decision.chosen.worst_load, best) << "seed " << seed;
    EXPECT_LE(static_cast<double>(decision.chosen.worst_load), 1.5 * static_cast<double>(best))
        << "seed " << seed;
  }
}

TEST(AssignAuto, IsNeverSlowerThanTheContiguousOptimumByPrediction) {
  for (const auto& [name, tree] : model_corpus()) {
    const AutoOptions options = auto_options(4, 0.2);
    const AutoDecision decision = assign_auto(tree, 4, options);

    const MemoryModel memory{.state_factor = 4, .kept_activations = options.step.shape.in_flight()};
    const Units units = make_units(tree, 0.2, memory);
    const Proposals proposals = make_proposals(tree, units, 4, options);
    ASSERT_EQ(proposals.list.front().method, "contiguous by load");
    const CallProgram program = make_call_program(tree, proposals.list.front().device_of_node);
    const schedule::Simulation step = predict_step(program, 4, options.step);

    EXPECT_LE(decision.chosen.predicted_step_ns, step.length) << name;
    EXPECT_EQ(decision.proposals, static_cast<int>(proposals.list.size()));
    EXPECT_GE(decision.chosen.messages, 4) << name << ": four devices meet";
    EXPECT_GT(decision.chosen.predicted_use, 0.0) << name;
    EXPECT_LE(decision.chosen.predicted_use, 1.0) << name;
  }
}

TEST(AssignAuto, CapacityIsKept) {
  // By time the larger tower is split, and both tables are on one device.
  const ModuleTree tree = two_tower();
  AutoOptions options = auto_options(2, 0.0);
  const AutoDecision free = assign_auto(tree, 2, options);

  options.capacity_bytes = free.chosen.worst_bytes - 1;
  const AutoDecision tight = assign_auto(tree, 2, options);
  options.capacity_bytes = 1 << 20;
  const AutoDecision hopeless = assign_auto(tree, 2, options);

  EXPECT_TRUE(free.fits);
  EXPECT_TRUE(tight.fits);
  EXPECT_LT(tight.chosen.worst_bytes, free.chosen.worst_bytes);
  EXPECT_FALSE(hopeless.fits);
  EXPECT_LE(hopeless.chosen.worst_bytes, tight.chosen.worst_bytes);
}

TEST(AssignAuto, SharedModulesAndContainersGoWithTheirUsers) {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    const ModuleTree tree = random_tree(seed, 50, false);
    const Assignment assignment = assign_auto(tree, 3, auto_options(3, 0.8)).assignment;

    for (int node = 1; node < tree.size(); ++node) {
      if (tree.module(node).called) continue;
      const int user = nearest_called_ancestor(tree, node);
      EXPECT_EQ(assignment.at(tree.module(node).name), assignment.at(tree.module(user).name));
    }
  }
}

TEST(AssignAuto, AModelWithoutParametersStaysOnTheFirstPartition) {
  TreeBuilder model;
  model.add("act").add("pool");

  EXPECT_EQ(used_partitions(assign_auto(model.tree(), 4, auto_options(4, 0.8)).assignment),
            std::set<int>{0});
}

TEST(AssignAuto, IsFarBetterThanThePublishedAlgorithmWhereThatIsPoor) {
  const ModuleTree tree = decoder_only(12, 768, 50257, 1024, true);
  const AutoOptions options = auto_options(8, 0.8);
  const MemoryModel memory{.state_factor = 4, .kept_activations = options.step.shape.in_flight()};
  const std::vector<Cost> costs = own_costs(tree, 0.8, memory);

  const AutoDecision decision = assign_auto(tree, 8, options);

  std::vector<Cost> load(8, 0);
  const auto published = place_level_by_level(tree, 8, costs, Containers::kDissolve);
  for (int node = 0; node < tree.size(); ++node) load[published[node]] += costs[node];
  EXPECT_GT(*std::max_element(load.begin(), load.end()), decision.contiguous_load / 2 * 3);
  EXPECT_LE(decision.optimality_gap(), 1.05);
}

TEST(AssignAuto, SaysWhatItChose) {
  const AutoDecision decision = assign_auto(two_tower(), 2, auto_options(2, 0.8));

  EXPECT_THAT(decision.summary(), HasSubstr("Partition chosen: " + decision.chosen.method));
  EXPECT_THAT(decision.summary(), HasSubstr("of the contiguous optimum"));
}

}  // namespace
}  // namespace smp::partition
