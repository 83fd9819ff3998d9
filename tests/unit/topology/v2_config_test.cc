// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/topology/v2_config.h"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/refusal.h"

namespace smp::topology {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using testing::StartsWith;

V2Config v2_config_of(std::string_view state, std::string_view job = {},
                      std::string_view script = {}) {
  const std::array origins{parse_settings(state, "torch.sagemaker.state"),
                           parse_settings(job, "SM_HP_MP_PARAMETERS"),
                           parse_settings(script, "torch.sagemaker.init(config)")};
  return make_v2_config(origins);
}

std::string v2_error(std::string_view settings) {
  return refusal([&] { v2_config_of(settings); });
}

std::string v2_world_error(std::string_view settings, int world_size = 8) {
  return refusal([&] { validate_world(v2_config_of(settings), world_size); });
}

TEST(V2Config, EveryDocumentedKeyHasItsDefault) {
  EXPECT_EQ(v2_config_of("").as_json(),
            R"({"hybrid_shard_degree":0,"sm_activation_offloading":true,)"
            R"("activation_loading_horizon":2,"fsdp_cache_flush_warnings":true,)"
            R"("allow_empty_shards":false,"tensor_parallel_degree":1,)"
            R"("context_parallel_degree":1,"expert_parallel_degree":1,"random_seed":12345})");
}

TEST(V2Config, AnOriginGoesBeforeThoseBehindIt) {
  const V2Config config = v2_config_of("tensor_parallel_degree=1",
                                       R"({"tensor_parallel_degree": "4", "random_seed": 3})",
                                       R"({"random_seed": 7, "allow_empty_shards": "true"})");

  EXPECT_EQ(config.tensor_parallel_degree, 1);
  EXPECT_EQ(config.random_seed, 3);
  EXPECT_TRUE(config.allow_empty_shards);
  EXPECT_THAT(config.warnings,
              ElementsAre("tensor_parallel_degree=1 of torch.sagemaker.state wins over "
                          "tensor_parallel_degree=4 of SM_HP_MP_PARAMETERS",
                          "random_seed=3 of SM_HP_MP_PARAMETERS wins over random_seed=7 of "
                          "torch.sagemaker.init(config)"));
}

TEST(V2Config, WrongKeysAndValuesAreNamedWithTheirPlace) {
  EXPECT_EQ(v2_error("hybrid_shard_degre=2"),
            "torch.sagemaker.state: unknown key \"hybrid_shard_degre\"; did you mean "
            "hybrid_shard_degree?");
  EXPECT_THAT(v2_error("tensor_parallel=2"), HasSubstr("did you mean tensor_parallel_degree?"));
  EXPECT_THAT(v2_error("learning_rate_of_the_model=2"),
              HasSubstr("smp_runtime/topology/v2_parameters.md lists the known ones"));
  EXPECT_THAT(v2_error("hybrid_shard_degree=-1"),
              StartsWith("torch.sagemaker.state: hybrid_shard_degree is -1; expected an integer "
                         "from 0 to 1048576 (ranks over which"));
  EXPECT_THAT(v2_error("tensor_parallel_degree=0"), HasSubstr("an integer from 1 to"));
  EXPECT_THAT(v2_error("hybrid_shard_degree=True"), HasSubstr("is true; expected an integer"));
  EXPECT_THAT(v2_error("sm_activation_offloading=yes"), HasSubstr("expected true or false"));
}

TEST(V2Config, KeysOfTheOtherGenerationNameItsModule) {
  for (const char* key : {"partitions", "pipeline_parallel_degree", "microbatches", "ddp"}) {
    EXPECT_THAT(v2_error(std::string(key) + "=1"),
                HasSubstr("this is SMP v1: import smdistributed.modelparallel.torch"));
  }
  EXPECT_THAT(
      refusal([] { make_parallel_config(parse_settings("allow_empty_shards=1", "here")); }),
      StartsWith("here: key \"allow_empty_shards\": this is SMP v2: import torch.sagemaker"));
}

TEST(V2Config, PrivateKeysAreIgnoredWithAWarning) {
  EXPECT_THAT(v2_config_of("_other=1").warnings, ElementsAre(HasSubstr("private key \"_other\"")));
}

TEST(V2Config, DegreesThatDoNotGoTogetherAreNamed) {
  EXPECT_EQ(v2_world_error("tensor_parallel_degree=2,hybrid_shard_degree=4"), "accepted");
  EXPECT_EQ(v2_world_error("hybrid_shard_degree=3"),
            "hybrid_shard_degree is 3, which does not divide the number of ranks, 8");
  EXPECT_THAT(v2_world_error("tensor_parallel_degree=3"),
              HasSubstr("tensor_parallel_degree is 3, which does not divide"));
  EXPECT_THAT(v2_world_error("tensor_parallel_degree=4,hybrid_shard_degree=4"),
              HasSubstr("hybrid_shard_degree is 16, which does not divide"));
  EXPECT_THAT(v2_world_error("context_parallel_degree=4,hybrid_shard_degree=2"),
              HasSubstr("expected at most hybrid_shard_degree, 2"));
  EXPECT_THAT(v2_world_error("expert_parallel_degree=2,tensor_parallel_degree=2"),
              HasSubstr("at most one of them may be above 1"));
  EXPECT_THAT(v2_world_error("expert_parallel_degree=2"),
              HasSubstr("expert parallelism is not offered"));
  EXPECT_THAT(v2_world_error("context_parallel_degree=2"),
              HasSubstr("context parallelism is not offered"));
}

TEST(V2Config, ItsShardDegreeIsTheKeysOrWhatTensorParallelismLeaves) {
  EXPECT_EQ(v2_config_of("hybrid_shard_degree=2").shard_degree(8), 2);
  EXPECT_EQ(v2_config_of("tensor_parallel_degree=2").shard_degree(8), 4);
  EXPECT_EQ(v2_config_of("").shard_degree(8), std::nullopt);
}

}  // namespace
}  // namespace smp::topology
