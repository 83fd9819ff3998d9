// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/api/unit_placement.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/api/checkpoint_parts.h"
#include "smp_runtime/core/error.h"

namespace smp::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::ThrowsMessage;

Unit a_unit(std::string name, std::int64_t elements) {
  Unit unit{.name = std::move(name), .forward = [](const at::Tensor& input) { return input; }};
  if (elements > 0) unit.parameters.push_back({"weight", at::zeros({elements})});
  return unit;
}

std::vector<Unit> four_units() {
  return {a_unit("a", 100), a_unit("b", 0), a_unit("c", 60), a_unit("d", 40)};
}

Placement place(const std::vector<Unit>& units, const std::map<std::string, int>& pins,
                std::string_view settings = "pipeline_parallel_degree=2") {
  const auto config = topology::make_parallel_config(topology::parse_settings(settings, "a test"));
  return place_units(units, /*is_chain=*/true, pins, config, "auto", {});
}

std::map<std::string, int> partitions_of(const Placement& placement) {
  auto partitions = placement.partition.assignment.partition_of;
  partitions.erase("");  // the root
  return partitions;
}

TEST(UnitPlacement, SpreadsParametersEvenlyAndAUnitWithoutAnyGoesWithTheOneBefore) {
  EXPECT_THAT(partitions_of(place(four_units(), {})),
              ElementsAre(Pair("a", 0), Pair("b", 0), Pair("c", 1), Pair("d", 1)));
}

TEST(UnitPlacement, PinsDecideAndOthersGoToTheDefaultPartition) {
  EXPECT_THAT(partitions_of(place(four_units(), {{"b", 1}},
                                  "pipeline_parallel_degree=2,auto_partition=False,"
                                  "default_partition=0")),
              ElementsAre(Pair("a", 0), Pair("b", 1), Pair("c", 0), Pair("d", 0)));
}

TEST(UnitPlacement, RefusesWhatCannotBePlaced) {
  const auto refused = [](const std::vector<Unit>& units, const std::map<std::string, int>& pins,
                          const std::string& text) {
    EXPECT_THAT([&] { static_cast<void>(place(units, pins)); },
                ThrowsMessage<ConfigError>(HasSubstr(text)));
  };

  refused({a_unit("a", 1)}, {}, "1 units for pipeline_parallel_degree=2");
  refused({a_unit("a", 1), a_unit("", 1)}, {}, "a unit has no name");
  refused({a_unit("a", 1), a_unit("a", 1)}, {}, "two units are named \"a\"");
  refused({a_unit("a", 1), Unit{.name = "b", .forward = {}}}, {}, "unit \"b\" has no forward");
  refused(four_units(), {{"e", 0}}, "no unit is named \"e\"; there are a, b, c, d");
  refused(four_units(), {{"c", 2}}, "partition 2 of unit \"c\" is not in [0, 2)");
}

TEST(UnitPlacement, OwnersOfASharedParameterCannotBePinnedApart) {
  std::vector<Unit> units{a_unit("embedding", 10), a_unit("body", 10), a_unit("head", 0)};
  units[2].parameters = units[0].parameters;

  EXPECT_THAT(
      [&] {
        static_cast<void>(place(units, {{"embedding", 0}, {"head", 1}}));
      },
      ThrowsMessage<ConfigError>(testing::AllOf(HasSubstr("embedding"), HasSubstr("head"))));
  const auto placed = partitions_of(place(units, {}));
  EXPECT_EQ(placed.at("embedding"), placed.at("head"));
}

TEST(UnitPlacement, TheTextOfUnitsTellsModelsApart) {
  std::vector<Unit> units{a_unit("a", 3)};
  const std::string text = units_text(units);
  EXPECT_EQ(text, "\"a\" with parameters of weight [3] Float frozen\n");

  units[0].parameters[0].tensor = at::zeros({3}).set_requires_grad(true);

  EXPECT_EQ(units_text(units), "\"a\" with parameters of weight [3] Float\n");
}

TEST(ParameterNames, AreThoseOfTheFirstUnitAndTiedOnesAreKnown) {
  std::vector<Unit> units{a_unit("embedding", 10), a_unit("body", 10)};
  units.push_back({.name = "head", .forward = {}, .parameters = {{"table", {}}}});
  units[2].parameters[0].tensor = units[0].parameters[0].tensor;

  const ParameterNames names(units);

  EXPECT_THAT(names.all(), ElementsAre("embedding.weight", "body.weight"));
  EXPECT_EQ(names.of(units[2].parameters[0].tensor), "embedding.weight");
  EXPECT_THAT(names.tied(), ElementsAre(Pair("head.table", "embedding.weight")));
  EXPECT_THROW(static_cast<void>(names.of(at::zeros({1}))), InternalError);
}

}  // namespace
}  // namespace smp::api
