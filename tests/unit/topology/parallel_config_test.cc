// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/topology/parallel_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "smp_runtime/topology/parameter_table.h"
#include "tests/unit/refusal.h"

namespace smp::topology {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

ParallelConfig config_of(std::string_view job, std::string_view dict = "{}") {
  return make_parallel_config(parse_settings(job, "SM_HP_MP_PARAMETERS"),
                              parse_settings(dict, "smp.init(config)"));
}

std::string config_error(std::string_view job, std::string_view dict = "{}") {
  return refusal([&] { config_of(job, dict); });
}

TEST(ParallelConfig, NothingGivesDefaults) {
  const ParallelConfig config = config_of("");

  EXPECT_EQ(config.as_json(), ParallelConfig().as_json());
  EXPECT_THAT(config.warnings, IsEmpty());
  EXPECT_EQ(config.active_microbatches, 3);
}

TEST(ParallelConfig, TakesTheConfigOfAwsContainerTests) {
  const ParallelConfig config =
      config_of(R"({"ddp":true,"microbatches":4,"partitions":2,"pipeline":"interleaved"})");

  EXPECT_TRUE(config.ddp);
  EXPECT_EQ(config.microbatches, 4);
  EXPECT_EQ(config.pipeline_parallel_degree, 2);
  EXPECT_EQ(config.active_microbatches, 4);
}

TEST(ParallelConfig, DerivesDefaultsUnlessGiven) {
  EXPECT_EQ(config_of("optimize=speed").memory_weight, 0.2);
  EXPECT_EQ(config_of("optimize=memory").memory_weight, 0.8);
  EXPECT_EQ(config_of("optimize=speed,memory_weight=0.8").memory_weight, 0.8);
  EXPECT_EQ(config_of("partitions=4,active_microbatches=3").active_microbatches, 3);
}

TEST(ParallelConfig, AliasesMeanTheSame) {
  EXPECT_EQ(config_of("pipeline_parallel_degree=2").pipeline_parallel_degree, 2);
  EXPECT_EQ(config_of("partitions=2,pipeline_parallel_degree=2").pipeline_parallel_degree, 2);
  EXPECT_THAT(config_error("partitions=2,pipeline_parallel_degree=4"),
              HasSubstr("partitions is 2 but pipeline_parallel_degree is 4"));
}

TEST(ParallelConfig, JobLevelWinsOverTheDict) {
  const ParallelConfig config =
      config_of("partitions=2", R"({"pipeline_parallel_degree": 4, "microbatches": 8})");

  EXPECT_EQ(config.pipeline_parallel_degree, 2);
  EXPECT_EQ(config.microbatches, 8);
  EXPECT_THAT(
      config.warnings,
      ElementsAre("partitions=2 of SM_HP_MP_PARAMETERS wins over pipeline_parallel_degree=4 "
                  "of smp.init(config)"));
}

TEST(ParallelConfig, EqualValuesWrittenDifferentlyAreNoConflict) {
  const ParallelConfig config = config_of(R"({"ddp": "true"})", R"({"ddp": 1})");

  EXPECT_TRUE(config.ddp);
  EXPECT_THAT(config.warnings, IsEmpty());
}

TEST(ParallelConfig, NullMeansAbsent) {
  const ParallelConfig config = config_of(R"({"ddp_port": null, "partitions": null})");

  EXPECT_EQ(config.ddp_port, std::nullopt);
  EXPECT_EQ(config.pipeline_parallel_degree, 1);
}

TEST(ParallelConfig, AnUnknownKeyNamesNearOnes) {
  EXPECT_THAT(
      config_error("microbatch=2"),
      HasSubstr("SM_HP_MP_PARAMETERS: unknown key \"microbatch\"; did you mean microbatches"));
  EXPECT_THAT(config_error("", R"({"zzzzzzzzzzzzzz": 1})"),
              HasSubstr("smp.init(config): unknown key \"zzzzzzzzzzzzzz\"; "
                        "smp_runtime/topology/parameters.md lists the known ones"));
}

TEST(ParallelConfig, AnUnknownPrivateKeyWarns) {
  EXPECT_THAT(config_of("_secret=1").warnings,
              ElementsAre(HasSubstr("private key \"_secret\" is not known here and is ignored")));
}

TEST(ParallelConfig, SettingsWithoutEffectWarn) {
  EXPECT_THAT(config_of("fast_mode=0,static_mode=0,contiguous=True").warnings, IsEmpty());
  EXPECT_THAT(config_of("contiguous=False,fast_mode=1").warnings,
              ElementsAre(HasSubstr("contiguous=false is accepted without effect"),
                          HasSubstr("fast_mode=true is accepted without effect")));
  EXPECT_THAT(config_of("_fp32_grad_accumulation=1").warnings,
              ElementsAre(HasSubstr("accepted without effect: with fp16 or bf16")));
}

TEST(ParallelConfig, SimpleWarnsWhenItKeepsMoreMicrobatchesInFlight) {
  EXPECT_THAT(config_of("pipeline=simple,microbatches=4,active_microbatches=4").warnings,
              IsEmpty());
  EXPECT_THAT(
      config_of("pipeline=simple,microbatches=4,active_microbatches=2").warnings,
      ElementsAre(HasSubstr("all 4 microbatches are in flight, not active_microbatches=2")));
  EXPECT_THAT(config_of("microbatches=4,active_microbatches=2").warnings, IsEmpty());
}

TEST(ParallelConfig, MemoryOfAPipelineThatHasNoBoundByItIsAWarning) {
  EXPECT_THAT(config_of("pipeline=zero_bubble,pipeline_memory=2,partitions=4").warnings, IsEmpty());
  EXPECT_THAT(config_of("pipeline_memory=2,partitions=4").warnings,
              ElementsAre(HasSubstr("pipeline_memory=2 bounds nothing with pipeline=interleaved")));
}

TEST(ParallelConfig, ActiveMicrobatchesFollowTheMemoryOfAPipeline) {
  EXPECT_EQ(config_of("pipeline=zero_bubble,partitions=4").active_microbatches, 6);
  EXPECT_EQ(config_of("pipeline=zero_bubble,pipeline_memory=2,partitions=4").active_microbatches,
            10);
  EXPECT_EQ(config_of("pipeline=zero_bubble,pipeline_memory=0.3,partitions=4").active_microbatches,
            4);
}

TEST(ParallelConfig, APartitionFileOfOnePartitionIsAWarning) {
  EXPECT_THAT(config_of("partition_file=parts.json").warnings,
              ElementsAre(HasSubstr("partition_file=parts.json is neither written nor read")));
  EXPECT_THAT(config_of("partition_file=parts.json,partitions=2").warnings, IsEmpty());
}

TEST(ParallelConfig, JsonHoldsEveryKeyUnderEverySpelling) {
  const auto values = nlohmann::json::parse(config_of("partitions=2,ddp=1").as_json());

  for (const ConfigParameter& parameter : ConfigParameter::table()) {
    EXPECT_TRUE(values.contains(parameter.name)) << parameter.name;
  }
  EXPECT_EQ(values["partitions"], 2);
  EXPECT_EQ(values["pipeline_parallel_degree"], 2);
  EXPECT_EQ(values["ddp"], true);
  EXPECT_TRUE(values["ddp_port"].is_null());
  EXPECT_EQ(values["memory_weight"], 0.8);
}

TEST(ParallelConfig, ItsJsonReadsBackAsItself) {
  const ParallelConfig config = config_of("partitions=4,ddp=1,ddp_port=5000,optimize=speed");

  EXPECT_EQ(config_of(config.as_json()).as_json(), config.as_json());
}

}  // namespace
}  // namespace smp::topology
