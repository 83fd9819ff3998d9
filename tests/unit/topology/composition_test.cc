// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/topology/composition.h"

#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/topology/parameter_table.h"
#include "tests/unit/refusal.h"

namespace smp::topology {
namespace {

using testing::HasSubstr;

/// Settings that ask for one feature, but for `ddp`.
std::string asking(std::string_view key) {
  const bool is_degree = key.find("degree") != std::string_view::npos || key == "partitions";
  return std::string(key) + (is_degree ? "=2" : "=1");
}

ParallelConfig with_replicas(const std::string& text) {
  return make_parallel_config(parse_settings(text + ",ddp=1", "test"));
}

TEST(Composition, EveryFeatureIsAskedForByItsKeyAndByNoDefault) {
  for (const Feature& feature : features()) {
    ASSERT_NE(find_parameter(feature.key), nullptr) << feature.key;
    EXPECT_TRUE(feature.asked(with_replicas(asking(feature.key)))) << feature.key;
    EXPECT_FALSE(feature.asked(ParallelConfig{})) << feature.key;
  }
}

TEST(Composition, EveryPairIsTakenOrRefusedAsTheTableSays) {
  std::set<std::pair<std::string_view, std::string_view>> listed;
  for (const Exclusion& pair : exclusions()) {
    const std::string settings = asking(pair.one) + "," + asking(pair.other);
    const std::string text = refusal([&] { with_replicas(settings); });
    EXPECT_TRUE(listed.emplace(pair.one, pair.other).second) << settings << " is listed twice";
    EXPECT_THAT(text, HasSubstr(pair.reason)) << settings;
    EXPECT_THAT(text, HasSubstr(pair.one));
    EXPECT_THAT(text, HasSubstr(pair.other));
  }
  for (const Feature& one : features()) {
    for (const Feature& other : features()) {
      if (one.key >= other.key || listed.count({one.key, other.key}) != 0 ||
          listed.count({other.key, one.key}) != 0) {
        continue;
      }
      const std::string settings = asking(one.key) + "," + asking(other.key);
      EXPECT_EQ(refusal([&] { with_replicas(settings); }), "accepted") << settings;
    }
  }
}

TEST(Composition, TheTableNamesEveryFeatureAndReason) {
  const std::string table = compositions_as_markdown();

  for (const Feature& feature : features()) EXPECT_THAT(table, HasSubstr(feature.key));
  for (const Exclusion& pair : exclusions()) EXPECT_THAT(table, HasSubstr(pair.reason));
}

}  // namespace
}  // namespace smp::topology
