// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/topology/parallel_config.h"
#include "tests/unit/refusal.h"

namespace smp::topology {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Optional;

ParallelConfig checked(std::string_view text) {
  return make_parallel_config(parse_settings(text, "test"));
}

struct Case {
  const char* settings;
  const char* text;
};

TEST(ParallelRules, RefuseWhatExcludesOrMissesACompanion) {
  const Case cases[] = {
      {"auto_partition=false", "auto_partition=false needs default_partition"},
      {"default_partition=1", "default_partition=1 does not exist with partitions=1"},
      {"default_partition=2,partitions=2", "expected a partition from 0 to 1"},
      {"load_partition=1", "load_partition=true needs partition_file"},
      {"horovod=true", "horovod=true is not offered with PyTorch; use \"ddp\": true"},
      {"horovod=true,ddp=true", "excludes ddp"},
      {"herring=true", "herring=true is not offered"},
      {"ddp_port=5000", "ddp_port=5000 needs data parallelism; add \"ddp\": true"},
      {"ddp_dist_backend=gloo", "ddp_dist_backend=gloo needs data parallelism"},
      {"tensor_parallel_degree=2", "tensor_parallel_degree=2 needs data parallelism"},
      {"tensor_parallel_degree=2", "tensor_parallel_degree=2 needs data parallelism"},
      {"sharded_data_parallel_degree=2", "needs data parallelism"},
      {"shard_optimizer_state=1", "shard_optimizer_state=true needs data parallelism"},
      {"sharded_data_parallel_degree=2,ddp=1,partitions=2", "partitions=2 cannot be combined with"},
      {"sharded_data_parallel_degree=2,ddp=1,shard_optimizer_state=1", "already shards"},
      {"fp16=1,bf16=1", "fp16=true cannot be combined with bf16=true"},
  };
  for (const Case& bad : cases) {
    EXPECT_THAT(refusal([&] { checked(bad.settings); }), HasSubstr(bad.text)) << bad.settings;
  }
}

TEST(ParallelRules, AcceptTheConfigurationsOfPublishedJobs) {
  for (const char* settings :
       {"partitions=2,microbatches=4,placement_strategy=spread,pipeline=interleaved,optimize=speed,"
        "ddp=True",
        "partitions=2,microbatches=12,optimize=speed,ddp=True,pipeline=interleaved,"
        "overlapping_allreduce=True,placement_strategy=cluster,memory_weight=0.3",
        "ddp=True,tensor_parallel_degree=4,partitions=2,shard_optimizer_state=True,"
        "prescaled_batch=True,fp16=True,fp16_params=0,optimize=speed,auto_partition=False,"
        "default_partition=0,static_mode=0,fast_mode=0",
        "ddp=True,microbatches=2,active_microbatches=2,offload_activations=1,optimize=speed,"
        "auto_partition=1",
        "partitions=1,ddp=1,skip_tracing=1,delayed_parameter_initialization=1,"
        "offload_activations=1,activation_loading_horizon=4,sharded_data_parallel_degree=8,bf16=1,"
        "sdp_reduce_bucket_size=5e8,sdp_param_persistence_threshold=1e6,"
        "sdp_max_live_parameters=1e9,sdp_hierarchical_allgather=1,sdp_gradient_clipping=1.0,"
        "ddp_dist_backend=auto,_match_weights=0,checkpoint_attentions=0",
        "ddp=1,sharded_data_parallel_degree=4,tensor_parallel_degree=2,prescaled_batch=1"}) {
    EXPECT_EQ(refusal([&] { checked(settings); }), "accepted") << settings;
  }
}

TEST(ParallelRules, TheWorldMustDivide) {
  const auto fit = [](const char* settings, int world) {
    return refusal([&] { validate_world(checked(settings), world, 8); });
  };

  EXPECT_EQ(fit("partitions=2", 8), "accepted");
  EXPECT_EQ(fit("partitions=2,tensor_parallel_degree=4,ddp=1", 8), "accepted");
  EXPECT_THAT(fit("partitions=3", 8), HasSubstr("world size 8 is not divisible by partitions 3 x "
                                                "tensor_parallel_degree 1 = 3"));
  EXPECT_THAT(fit("partitions=4", 2), HasSubstr("start a multiple of 4 processes"));
  EXPECT_THAT(fit("sharded_data_parallel_degree=3,ddp=1", 8),
              HasSubstr("sharded_data_parallel_degree 3 does not divide the 8 replicas"));
  EXPECT_THAT(fit("sharded_data_parallel_degree=8,tensor_parallel_degree=2,ddp=1", 8),
              HasSubstr("does not divide the 4 replicas"));
  EXPECT_THAT(fit("shard_optimizer_state=1,ddp=1,partitions=2", 2),
              HasSubstr("needs more than one data-parallel rank"));
  EXPECT_THAT(fit("", 0), HasSubstr("expected at least 1 of each"));
}

TEST(ParallelRules, TensorParallelismAcrossHostsIsWorthALine) {
  const ParallelConfig config = checked("tensor_parallel_degree=4,ddp=1");

  EXPECT_THAT(validate_world(config, 8, 8), IsEmpty());
  EXPECT_THAT(validate_world(config, 8, 2),
              ElementsAre(HasSubstr("exceeds the 2 ranks of a host")));
}

TEST(ParallelRules, ReplicasWithoutDdpCannotBeWrapped) {
  EXPECT_THAT(refusal_to_wrap(checked("partitions=2"), 8),
              Optional(HasSubstr("makes 4 replicas of the model, but ddp is false")));
  EXPECT_EQ(refusal_to_wrap(checked("partitions=2"), 2), std::nullopt);
  EXPECT_EQ(refusal_to_wrap(checked("partitions=2,ddp=1"), 8), std::nullopt);
}

}  // namespace
}  // namespace smp::topology
