// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/job_partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace smp::partition {
namespace {

using ::testing::HasSubstr;
using topology::ParallelConfig;

TEST(StateFactor, OfOptimizerStateCountsWhatIsARanksOwn) {
  const JobModel whole{.elements = 20, .parameter_bytes = 80, .replicas = 3};
  const JobModel half{.elements = 20, .parameter_bytes = 40, .replicas = 3};
  ParallelConfig plain;
  ParallelConfig mixed;
  mixed.bf16 = true;

  // Bytes of parameter and gradient, and of Adam's state, over those of the parameter.
  EXPECT_EQ(state_factor(plain, whole), (4 + 4 + 8) / 4);
  EXPECT_EQ(state_factor(mixed, whole), (2 + 2 + 12) / 4);
  EXPECT_EQ(state_factor(plain, half), (2 + 2 + 12) / 2);

  // The latter is shared by 3 ranks.
  plain.shard_optimizer_state = mixed.shard_optimizer_state = true;
  EXPECT_EQ(state_factor(plain, whole), (4 + 4 + 4) / 4);
  EXPECT_EQ(state_factor(mixed, whole), (2 + 2 + 4) / 4);
  EXPECT_EQ(state_factor(plain, half), (2 + 2 + 4) / 2);
}

/// Eight modules that pass on a tensor of 1 kB, below a root without parameters.
ModuleTree chain() {
  ModuleTree tree;
  const int root = tree.add_module({.name = "", .passes_on = true});
  for (int i = 0; i < 8; ++i) {
    const std::string name = "layer" + std::to_string(i);
    tree.add_module({.name = name,
                     .parameters = {tree.add_parameter(name + ".weight", 1'000'000)},
                     .input_bytes = 1000,
                     .output_bytes = 1000},
                    root);
  }
  return tree;
}

ParallelConfig two_partitions() {
  ParallelConfig config;
  config.pipeline_parallel_degree = 2;
  config.microbatches = 4;
  config.active_microbatches = 4;
  return config;
}

TEST(JobPartition, IsByThePartitionerThatTheEnvironmentAsksFor) {
  const JobModel model{.elements = 2'000'000, .parameter_bytes = 8'000'000};

  const JobPartition best = partition_job(chain(), two_partitions(), model, "auto");
  const JobPartition published = partition_job(chain(), two_partitions(), model, "compat");

  EXPECT_THAT(best.summary, HasSubstr("predicted step"));
  EXPECT_THAT(published.summary, HasSubstr("as SMP_PARTITIONER=compat asks for"));
  for (const Assignment& assignment : {best.assignment, published.assignment}) {
    EXPECT_EQ(assignment.partitions, 2);
    EXPECT_EQ(assignment.at("layer3"), 0);
    EXPECT_EQ(assignment.at("layer4"), 1);
  }
}

TEST(JobPartition, WarnsOfWhatFitsNoDevice) {
  JobModel model{.elements = 2'000'000, .parameter_bytes = 8'000'000};
  const auto warning = [&] {
    return partition_job(chain(), two_partitions(), model, "auto").warning;
  };

  EXPECT_EQ(warning(), "");
  model.device_bytes = 23'000'000;
  EXPECT_EQ(warning(), "");
  model.recompute_bytes = 10'000'000;
  EXPECT_THAT(warning(), HasSubstr("fits the memory of the devices"));
  model = {.elements = 2'000'000, .parameter_bytes = 8'000'000, .device_bytes = 11'000'000};
  EXPECT_THAT(warning(), HasSubstr("fits the memory of the devices"));
}

/// Sixteen modules, of which the first `recomputed` are checkpointed.
ModuleTree checkpointed(int recomputed) {
  ModuleTree tree;
  const int root = tree.add_module({.name = "", .passes_on = true});
  for (int i = 0; i < 16; ++i) {
    const std::string name = "layer" + std::to_string(i);
    Module layer{.name = name,
                 .parameters = {tree.add_parameter(name + ".weight", 1'000)},
                 .activation_bytes = 100'000,
                 .time_ns = 30'000'000};
    if (i < recomputed) {
      layer.activation_bytes = 10'000;
      layer.recompute_ns = layer.time_ns;
      layer.recomputed_bytes = 90'000;
    }
    tree.add_module(std::move(layer), root);
  }
  return tree;
}

TEST(JobPartition, PredictsRecomputationWithDeferredGradients) {
  ParallelConfig config = two_partitions();
  config.pipeline_parallel_degree = 4;
  config.microbatches = 8;
  config.active_microbatches = 10;
  const JobModel model{.elements = 4'000, .parameter_bytes = 16'000, .recompute_bytes = 90'000};
  const auto predicted = [&](const std::string& pipeline, double memory, int recomputed) {
    config.pipeline = pipeline;
    config.pipeline_memory = memory;
    return *partition_job(checkpointed(recomputed), config, model, "auto").predicted;
  };

  // Of a rank's four layers forward, and again, and both gradients.
  const double bound = 8 * 4 * 4 * 30;
  const StepPrediction one_by_one = predicted("interleaved", 1, 16);
  const StepPrediction deferred = predicted("zero_bubble", 1, 16);
  EXPECT_GT(one_by_one.step_ms, 1.2 * bound);
  EXPECT_LT(deferred.step_ms, 1.2 * bound);
  EXPECT_LT(predicted("zero_bubble", 1, 0).step_ms, deferred.step_ms);
  EXPECT_NEAR(deferred.use, bound / deferred.step_ms, 1e-6);

  // A rank keeps inputs of four microbatches, and what is recomputed for one, or for two.
  const std::int64_t state = 4 * 1'000 * 4;
  EXPECT_EQ(deferred.bytes, state + 4 * 4 * 10'000 + 4 * 90'000);
  EXPECT_EQ(predicted("zero_bubble", 2, 16).bytes, state + 8 * 4 * 10'000 + 2 * 4 * 90'000);
  EXPECT_EQ(predicted("zero_bubble", 1, 0).bytes, state + 4 * 4 * 100'000);
  EXPECT_EQ(one_by_one.bytes, state + 8 * 4 * 10'000 + 90'000);
  EXPECT_THAT(partition_job(checkpointed(16), config, model, "auto").summary,
              HasSubstr("; fullest partition "));
}

TEST(JobPartition, ExpectsFasterLinksBetweenGpus) {
  JobModel model{.elements = 2'000'000, .parameter_bytes = 8'000'000};

  const std::string on_cpus = partition_job(chain(), two_partitions(), model, "auto").summary;
  model.on_gpus = true;

  EXPECT_NE(partition_job(chain(), two_partitions(), model, "auto").summary, on_cpus);
}

}  // namespace
}  // namespace smp::partition
