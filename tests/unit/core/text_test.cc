// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/text.h"

#include <array>
#include <cstdint>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace smp {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Optional;

TEST(Split, SeparatorsStandBetweenParts) {
  EXPECT_THAT(split("a,,b,", ','), ElementsAre("a", "", "b", ""));
  EXPECT_THAT(split("", ','), ElementsAre(""));
}

TEST(Split, TerminatorsEndParts) {
  using std::string_view_literals::operator""sv;

  EXPECT_THAT(split_terminated("a\0\0b\0"sv, '\0'), ElementsAre("a", "", "b"));
  EXPECT_THAT(split_terminated("a\0b"sv, '\0'), ElementsAre("a", "b"));
  EXPECT_THAT(split_terminated("", '\0'), IsEmpty());
}

TEST(Number, IsTheWholeText) {
  EXPECT_THAT(parse_number<int>("-12"), Optional(-12));
  EXPECT_THAT(parse_number<double>("1.5e3"), Optional(1500.0));
  for (const char* other : {"", "+1", " 1", "1 ", "1x", "99999999999"}) {
    EXPECT_EQ(parse_number<int>(other), std::nullopt) << other;
  }
}

TEST(Number, OfJsonIsWholeAndFits) {
  EXPECT_THAT(whole_number<int>(nlohmann::json(-12)), Optional(-12));
  EXPECT_THAT(whole_number<std::int64_t>(nlohmann::json(INT64_MAX)), Optional(INT64_MAX));
  for (const char* other : {"1.0", "1e300", "2147483648", "18446744073709551615", "\"1\"", "[1]"}) {
    EXPECT_EQ(whole_number<int>(nlohmann::json::parse(other)), std::nullopt) << other;
  }
}

TEST(Json, NestsNoDeeperThanItsReadersGo) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };

  EXPECT_EQ(parse_json<nlohmann::json>(nested(kDeepestJson), "x").dump(), nested(kDeepestJson));
  EXPECT_THROW(parse_json<nlohmann::json>(nested(1'000'000), "x"), ConfigError);
  EXPECT_THROW(parse_json<nlohmann::json>("{", "x"), nlohmann::json::parse_error);
}

TEST(Number, OrWhatTheTextBeginsWith) {
  EXPECT_THAT(leading_number<int>("12.4"), Optional(12));
  EXPECT_EQ(leading_number<int>("v12"), std::nullopt);
}

TEST(NearNames, TheNearestComesFirst) {
  constexpr std::array<std::string_view, 3> kNames{"partition_file", "partitions", "pipeline"};

  EXPECT_THAT(near_names("partition", kNames), ElementsAre("partitions", "partition_file"));
  EXPECT_THAT(near_names("pipelin", kNames), ElementsAre("pipeline"));
  EXPECT_THAT(near_names("learning_rate", kNames), IsEmpty());
}

TEST(NearNames, AreThreeAtMost) {
  constexpr std::array<std::string_view, 4> kNames{"sdp_a", "sdp_b", "sdp_c", "sdp_d"};

  EXPECT_THAT(near_names("sdp_", kNames), ElementsAre("sdp_a", "sdp_b", "sdp_c"));
}

}  // namespace

}  // namespace smp
