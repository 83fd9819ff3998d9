// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/topology/setting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/refusal.h"

namespace smp::topology {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string parse_error(std::string_view text) {
  return refusal([&] { parse_settings(text, "SM_HP_MP_PARAMETERS"); });
}

Setting entry(std::string name, Value value) { return {std::move(name), std::move(value)}; }

TEST(Setting, ReadsJson) {
  const Settings settings = parse_settings(
      R"( {"ddp": true, "memory_weight": 0.3, "microbatches": 4, "pipeline": "simple", "x": null})",
      "here");

  EXPECT_EQ(settings.where, "here");
  EXPECT_THAT(settings.entries,
              testing::UnorderedElementsAre(entry("ddp", true), entry("memory_weight", 0.3),
                                            entry("microbatches", std::int64_t{4}),
                                            entry("pipeline", std::string("simple")),
                                            entry("x", std::monostate{})));
}

TEST(Setting, ReadsPairsAsTheCommandLineCarriesThem) {
  const Settings settings = parse_settings(
      "partitions=2, ddp=True,horovod=false,memory_weight=0.5,sdp_reduce_bucket_size=5e8,"
      "pipeline='simple',partition_file=\"a,b\",optimize=speed,",
      "--mp_parameters");

  EXPECT_THAT(
      settings.entries,
      ElementsAre(entry("partitions", std::int64_t{2}), entry("ddp", true), entry("horovod", false),
                  entry("memory_weight", 0.5), entry("sdp_reduce_bucket_size", 5e8),
                  entry("pipeline", std::string("simple")),
                  entry("partition_file", std::string("a,b")),
                  entry("optimize", std::string("speed"))));
}

TEST(Setting, NothingIsNoSettings) {
  EXPECT_THAT(parse_settings("", "x").entries, IsEmpty());
  EXPECT_THAT(parse_settings(" \n", "x").entries, IsEmpty());
  EXPECT_THAT(parse_settings("{}", "x").entries, IsEmpty());
}

TEST(Setting, UnwrapsTextThatWasEncodedTwice) {
  EXPECT_THAT(parse_settings(R"("{\"partitions\": 2}")", "x").entries,
              ElementsAre(entry("partitions", std::int64_t{2})));
  EXPECT_THAT(parse_settings(R"("partitions=2")", "x").entries,
              ElementsAre(entry("partitions", std::int64_t{2})));
}

TEST(Setting, BrokenJsonNamesLineAndColumn) {
  EXPECT_THAT(parse_error("{\"ddp\": true,\n  \"partitions\": two}"),
              HasSubstr("SM_HP_MP_PARAMETERS: not valid JSON at line 2, column 18"));
  EXPECT_THAT(parse_error("{\"ddp\": true"), HasSubstr("the text ends here"));
}

TEST(Setting, RefusesWhatItCannotMean) {
  EXPECT_THAT(parse_error(R"({"partitions": 1e999})"),
              HasSubstr("SM_HP_MP_PARAMETERS: number overflow parsing '1e999'"));
  EXPECT_THAT(parse_error(R"({"ddp": 1, "ddp": 0})"), HasSubstr("key \"ddp\" is given twice"));
  EXPECT_THAT(parse_error("ddp=1,ddp=0"), HasSubstr("key \"ddp\" is given twice"));
  EXPECT_THAT(parse_error(R"({"ddp": [1]})"), HasSubstr("ddp is [1]; expected a number"));
  EXPECT_THAT(parse_error("partitions"), HasSubstr("found \"partitions\"; expected JSON"));
  EXPECT_THAT(parse_error("=2"), HasSubstr("found \"=2\""));
  EXPECT_THAT(parse_error(R"("\"{}\"")"), HasSubstr("expected JSON"));
}

TEST(Setting, ANestedKeyMayRepeatANameOutside) {
  EXPECT_THAT(parse_error(R"({"a": {"ddp": 1, "ddp": 2}})"), HasSubstr("a is {"));
}

TEST(Setting, WritesJsonText) {
  EXPECT_EQ(to_text(Value()), "null");
  EXPECT_EQ(to_text(true), "true");
  EXPECT_EQ(to_text(std::int64_t{-3}), "-3");
  EXPECT_EQ(to_text(0.8), "0.8");
  EXPECT_EQ(to_text(std::string("a\"b")), R"("a\"b")");
}

}  // namespace
}  // namespace smp::topology
