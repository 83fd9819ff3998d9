// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/state/saved_state.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/equal.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"

namespace smp::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

c10::IValue dict(const std::vector<std::pair<c10::IValue, c10::IValue>>& items) {
  ObjectBuilder builder;
  for (const auto& [key, value] : items) builder.set(key, value);
  return builder.built();
}

c10::IValue list(const std::vector<c10::IValue>& values) {
  auto result = new_list();
  for (const c10::IValue& value : values) result.push_back(value);
  return result;
}

c10::IValue text(const char* value) { return std::string(value); }

at::Tensor floats(const std::vector<float>& values) { return at::tensor(values); }

/// Two elements of "w", of four, from `start` on.
ObjectReader part(std::int64_t start, std::int64_t format = 2,
                  const c10::IValue& shape = list({2, 2})) {
  const auto first = static_cast<float>(start);
  const c10::IValue entry = dict({{text("shape"), shape},
                                  {text("start"), start},
                                  {text("master"), floats({first, first + 1})},
                                  {text("state"), dict({{text("avg"), floats({-first, first})}})},
                                  {text("scalars"), dict({{text("step"), 7.0}})}});
  const c10::IValue group = dict({{text("lr"), 0.5}, {text("names"), list({text("w")})}});
  return {dict({{text("format"), format},
                {text("partition_count"), 2},
                {text("optimizer"), text("Adam")},
                {text("parameters"), dict({{text("w"), entry}})},
                {text("param_groups"), list({group})}}),
          "part"};
}

/// State of an optimizer over whole parameters, the first of them without a dimension.
ObjectReader whole() {
  const c10::IValue scale =
      dict({{text("step"), at::scalar_tensor(3)}, {text("avg"), at::scalar_tensor(0.5)}});
  const c10::IValue row = dict({{text("avg"), floats({1, 2})}, {text("row"), floats({9})}});
  const c10::IValue group =
      dict({{text("betas"), list({0.9, 0.99})}, {text("params"), list({0, 1})}});
  return {dict({{text("state"), dict({{0, scale}, {1, row}, {text("all"), 5}})},
                {text("param_groups"), list({group})}}),
          "whole"};
}

TEST(SavedState, GivesRunsAcrossParts) {
  SavedState saved("here");
  saved.add_optimizer(part(2));
  saved.add_optimizer(part(0));

  EXPECT_TRUE(at::equal(saved.master_of("w", 1, 2), floats({1, 2})));
  EXPECT_TRUE(at::equal(saved.run_of("w", "avg", 0, 4), floats({0, 0, -2, 2})));
  EXPECT_TRUE(at::equal(saved.whole_masters().at(0).second,
                        at::tensor({0.0F, 1.0F, 2.0F, 3.0F}).view({2, 2})));
  EXPECT_EQ(saved.whole_state("w").at("step").toDouble(), 7);
  EXPECT_EQ(saved.kind(), "Adam");
  ASSERT_EQ(saved.groups().size(), 1);
  EXPECT_THAT(saved.groups()[0].names, ElementsAre("w"));
}

TEST(SavedState, SaysHowManyElementsAreMissing) {
  SavedState saved("here");
  saved.add_optimizer(part(2));
  EXPECT_THAT(
      [&] { static_cast<void>(saved.master_of("w", 0, 4)); },
      ThrowsMessage<ConfigError>(HasSubstr("here holds 2 of 4 elements of master of \"w\"")));
}

TEST(SavedState, RunsThatOverlapHideNoGap) {
  SavedState saved("here");
  saved.add_optimizer(part(0));
  saved.add_optimizer(part(0));
  EXPECT_THAT([&] { static_cast<void>(saved.master_of("w", 0, 4)); },
              ThrowsMessage<ConfigError>(HasSubstr("holds 2 of 4 elements of master")));

  saved.add_optimizer(part(1));
  saved.add_optimizer(part(2));
  EXPECT_TRUE(at::equal(saved.master_of("w", 0, 4), floats({0, 1, 2, 3})));
}

TEST(SavedState, RunsLieWithinTheirParameter) {
  for (const std::int64_t start : {-1L, 3L, std::numeric_limits<std::int64_t>::max()}) {
    SavedState saved("here");
    EXPECT_THAT([&] { saved.add_optimizer(part(start)); },
                ThrowsMessage<ConfigError>(HasSubstr("expected a run of its 4")));
  }
}

TEST(SavedState, RefusesShapesThatAreNone) {
  constexpr std::int64_t kMany = std::int64_t{1} << 33;
  for (const c10::IValue& shape : {list({-2, -2}), list({kMany, kMany}), list({0.5})}) {
    SavedState saved("here");
    EXPECT_THAT([&] { saved.add_optimizer(part(0, 2, shape)); },
                ThrowsMessage<ConfigError>(HasSubstr("shape")));
  }
}

TEST(SavedState, RefusesNumbersOfParametersThatAreNone) {
  const c10::IValue empty = dict({{text("params"), list({})}});
  const auto optimizer = [&](const c10::IValue& state, const c10::IValue& masters) {
    return ObjectReader(dict({{text("state"), state},
                              {text("param_groups"), list({empty})},
                              {text(kMastersKey), masters}}),
                        "whole");
  };
  const c10::IValue huge = dict({{text("99999999999999999999999"), dict({})}});

  SavedState saved("here");
  saved.add_optimizer(optimizer(huge, dict({})));
  EXPECT_TRUE(saved.common().contains("99999999999999999999999"));
  EXPECT_THAT([&] { saved.add_optimizer(optimizer(dict({}), huge)); },
              ThrowsMessage<ConfigError>(HasSubstr("which is no number")));
}

TEST(SavedState, ReadsListsOfParts) {
  SavedState saved("here");
  saved.add_optimizer(
      {dict({{text("state"), list({part(0).object(), part(2).object()})}}), "list"});
  EXPECT_EQ(saved.parts(), 2);
  EXPECT_TRUE(at::equal(saved.master_of("w", 0, 4), floats({0, 1, 2, 3})));
}

TEST(SavedState, RefusesPartsOfLaterVersions) {
  SavedState saved("here");
  EXPECT_THAT([&] { saved.add_optimizer(part(0, 3)); },
              ThrowsMessage<ConfigError>(HasSubstr("shards of format 3")));
}

TEST(SavedState, KeepsCountersApartFromValuesOfEachElement) {
  SavedState saved("here");
  saved.add_optimizer(whole(), {"scale", "row"}, {{"scale", {}}, {"row", {2}}});

  EXPECT_TRUE(saved.parameters().at("scale").others.contains("step"));
  EXPECT_TRUE(saved.parameters().at("scale").runs.contains("avg"));
  EXPECT_TRUE(saved.parameters().at("row").runs.contains("avg"));
  EXPECT_TRUE(saved.parameters().at("row").others.contains("row"));
  EXPECT_EQ(saved.common().at("all").toInt(), 5);
  EXPECT_TRUE(at::equal(saved.run_of("row", "avg", 1, 1), floats({2})));
}

TEST(SavedState, NumbersParametersWithoutAName) {
  SavedState saved("here");
  saved.add_optimizer(whole(), {"scale"}, {});
  EXPECT_THAT(saved.groups().at(0).names, ElementsAre("scale", "#1"));
  EXPECT_TRUE(saved.whole_state("#1").contains("avg"));
}

TEST(SavedState, TakesFromAnotherRankOnlyWhatIsMissing) {
  SavedState own("own");
  own.add_optimizer(part(0));
  SavedState other("other");
  other.add_optimizer(part(2));

  own.complete_with(other);
  EXPECT_TRUE(at::equal(own.master_of("w", 0, 4), floats({0, 1, 2, 3})));
  EXPECT_EQ(own.parts(), 2);

  own.complete_with(other);  // nothing is missing any more
  EXPECT_EQ(own.parts(), 2);
}

TEST(SavedState, LeavesOutTheMarkOfPartialEntries) {
  SavedState saved("here");
  saved.add_model({dict({{text("a"), floats({1})}, {text(kPartialKey), true}}), "model"});
  EXPECT_EQ(saved.entries().size(), 1);
  EXPECT_FALSE(saved.has_values_in_shards());
}

}  // namespace
}  // namespace smp::checkpoint
