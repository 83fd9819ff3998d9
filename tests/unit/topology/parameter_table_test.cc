// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/topology/parameter_table.h"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/text.h"

namespace smp::topology {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

TEST(ParameterTable, HoldsEveryDocumentedKey) {
  for (const char* name : {"partitions",
                           "pipeline_parallel_degree",
                           "tensor_parallel_degree",
                           "microbatches",
                           "active_microbatches",
                           "pipeline",
                           "optimize",
                           "memory_weight",
                           "placement_strategy",
                           "auto_partition",
                           "default_partition",
                           "partition_file",
                           "load_partition",
                           "trace_device",
                           "ddp",
                           "ddp_port",
                           "ddp_dist_backend",
                           "horovod",
                           "contiguous",
                           "deterministic_server",
                           "offload_activations",
                           "activation_loading_horizon",
                           "shard_optimizer_state",
                           "prescaled_batch",
                           "skip_tracing",
                           "fp16",
                           "bf16",
                           "fp16_params",
                           "delayed_parameter_initialization",
                           "sharded_data_parallel_degree",
                           "sdp_reduce_bucket_size",
                           "sdp_param_persistence_threshold",
                           "sdp_max_live_parameters",
                           "sdp_hierarchical_allgather",
                           "sdp_gradient_clipping",
                           "checkpoint_attentions",
                           "static_mode",
                           "fast_mode",
                           "tensor_parallel_seed",
                           "_match_weights",
                           "_fp32_grad_accumulation",
                           "overlapping_allreduce",
                           "herring",
                           "predefined_hooks"}) {
    EXPECT_NE(find_parameter(name), nullptr) << name;
  }
}

template <typename Config>
class EachTable : public testing::Test {};
using Configs = testing::Types<ParallelConfig, V2Config>;
TYPED_TEST_SUITE(EachTable, Configs);

TYPED_TEST(EachTable, NamesAreUniqueAndExplained) {
  std::set<std::string_view> names;
  for (const Parameter<TypeParam>& parameter : Parameter<TypeParam>::table()) {
    EXPECT_TRUE(names.insert(parameter.name).second) << parameter.name;
    EXPECT_TRUE(parameter.alias.empty() || names.insert(parameter.alias).second);
    EXPECT_FALSE(parameter.help.empty()) << parameter.name;
  }
}

TYPED_TEST(EachTable, EveryDefaultIsALegalValue) {
  for (const Parameter<TypeParam>& parameter : Parameter<TypeParam>::table()) {
    TypeParam config;
    const Value value = parameter.read(config);

    EXPECT_NO_THROW(parameter.write(config, {std::string(parameter.name), value}, "test"));
    EXPECT_EQ(parameter.read(config), value) << parameter.name;
  }
}

TEST(ParameterTable, ConvertsWhatIsPlainlyMeant) {
  ParallelConfig config;
  const auto write = [&](const char* name, Value value) {
    find_parameter(name)->write(config, {name, std::move(value)}, "test");
  };

  for (const Value& yes : {Value(true), Value(std::int64_t{1}), Value(1.0),
                           Value(std::string("True")), Value(std::string("1"))}) {
    config.ddp = false;
    write("ddp", yes);
    EXPECT_TRUE(config.ddp) << to_text(yes);
  }
  write("ddp", std::string("false"));
  EXPECT_FALSE(config.ddp);
  write("sdp_reduce_bucket_size", 5e8);
  EXPECT_EQ(config.sdp_reduce_bucket_size, 500'000'000);
  write("microbatches", std::string("4"));
  EXPECT_EQ(config.microbatches, 4);
  write("trace_device", std::string("meta"));
  EXPECT_EQ(config.trace_device, "meta");
  write("memory_weight", std::int64_t{1});
  EXPECT_EQ(config.memory_weight, 1.0);
  write("ddp_port", std::int64_t{4321});
  EXPECT_EQ(config.ddp_port, 4321);
}

struct Refused {
  const char* name;
  Value value;
  const char* text;
};

TEST(ParameterTable, RefusesOtherTypesAndRanges) {
  const Refused cases[] = {
      {"microbatches", std::int64_t{0}, "microbatches is 0; expected an integer from 1"},
      {"microbatches", 2.5, "microbatches is 2.5; expected an integer"},
      {"microbatches", true, "microbatches is true; expected an integer"},
      {"microbatches", std::string("four"), "microbatches is \"four\"; expected an integer"},
      {"memory_weight", 1.5, "memory_weight is 1.5; expected a number from 0 to 1"},
      {"memory_weight", std::string("nan"), "expected a number from 0 to 1"},
      {"ddp", std::int64_t{2}, "ddp is 2; expected true or false"},
      {"ddp", std::string("yes"), "ddp is \"yes\"; expected true or false"},
      {"ddp_port", std::int64_t{65536}, "expected an integer from 1 to 65535"},
      {"pipeline", std::string("gpipe"), "expected one of interleaved, zero_bubble, simple"},
      {"pipeline", std::int64_t{1}, "expected one of interleaved, zero_bubble, simple"},
      {"placement_strategy", std::string("DPP"), "expected one of cluster, spread, DPT"},
      {"partition_file", std::string(), "expected a text that is not empty"},
      {"partitions", 1e30, "expected an integer from 1 to 1048576"},
  };
  for (const Refused& refused : cases) {
    ParallelConfig config;
    try {
      find_parameter(refused.name)->write(config, {refused.name, refused.value}, "here");
      ADD_FAILURE() << refused.name << " took " << to_text(refused.value);
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr(refused.text));
      EXPECT_THAT(error.what(), testing::StartsWith("here: "));
    }
  }
}

TEST(ParameterTable, FindsNearNames) {
  const auto known = parameter_names();

  EXPECT_THAT(near_names("microbatch", known), testing::Contains("microbatches"));
  EXPECT_THAT(near_names("pipeline_parallel_degre", known),
              testing::Contains("pipeline_parallel_degree"));
  EXPECT_EQ(near_names("partition", known).front(), "partitions");
  EXPECT_THAT(near_names("learning_rate_of_the_model", known), IsEmpty());
}

}  // namespace
}  // namespace smp::topology
