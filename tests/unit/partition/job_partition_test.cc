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

TEST(JobPartition, ExpectsFasterLinksBetweenGpus) {
  JobModel model{.elements = 2'000'000, .parameter_bytes = 8'000'000};

  const std::string on_cpus = partition_job(chain(), two_partitions(), model, "auto").summary;
  model.on_gpus = true;

  EXPECT_NE(partition_job(chain(), two_partitions(), model, "auto").summary, on_cpus);
}

}  // namespace
}  // namespace smp::partition
