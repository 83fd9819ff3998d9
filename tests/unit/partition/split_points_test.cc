// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/split_points.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "smp_runtime/core/error.h"

namespace smp::partition {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

/// An embedding and blocks of two layers, whose second one reads the block's input, too.
ModuleTree blocks(const std::vector<int64_t>& times) {
  ModuleTree tree;
  const auto add = [&](const std::string& name, int parent, int64_t time, bool called = true) {
    const int parameter = tree.add_parameter(name + ".weight", 4);
    Module module{.name = name, .time_ns = time, .called = called};
    if (time > 0) module.parameters = {parameter};
    return tree.add_module(std::move(module), parent);
  };
  const int root = add("", -1, 0);
  int last = add("embedding", root, 1);
  const int list = add("blocks", root, 0, /*called=*/false);
  for (size_t number = 0; number < times.size(); ++number) {
    const std::string name = fmt::format("blocks.{}", number);
    const int block = add(name, list, 0);
    const int first = add(name + ".first", block, times[number] / 2);
    const int second = add(name + ".second", block, times[number] - times[number] / 2);
    tree.add_tensor({.bytes = 100, .producer = last, .consumers = {first, second}});
    tree.add_tensor({.bytes = 100, .producer = first, .consumers = {second}});
    last = second;
  }
  return tree;
}

TEST(SplitPoints, AreBetweenBlocksWhichTheFewestBytesCross) {
  EXPECT_THAT(split_points(blocks({90, 90, 90, 90}), 2), ElementsAre("blocks.2"));
  EXPECT_THAT(split_points(blocks({90, 90, 90, 90}), 4),
              ElementsAre("blocks.1", "blocks.2", "blocks.3"));
}

TEST(SplitPoints, AreWithinABlockThatWouldMakeAStageTooHeavy) {
  EXPECT_THAT(split_points(blocks({50, 200, 50}), 2), ElementsAre("blocks.1.second"));
}

TEST(SplitPoints, OfOneStageAreNone) { EXPECT_THAT(split_points(blocks({90}), 1), IsEmpty()); }

TEST(SplitPoints, OfMoreStagesThanModulesAreRefused) {
  EXPECT_THAT([] { static_cast<void>(split_points(blocks({90}), 4)); },
              ThrowsMessage<ConfigError>(HasSubstr("3 modules to place cannot be cut into 4")));
  EXPECT_THROW(static_cast<void>(split_points(blocks({90}), 0)), ConfigError);
}

/// The heaviest of the stages that begin with these modules.
int64_t heaviest(const std::vector<int64_t>& times, const std::vector<size_t>& begins) {
  int64_t most = 0;
  size_t from = 0;
  for (size_t stage = 0; stage <= begins.size(); ++stage) {
    const size_t to = stage < begins.size() ? begins[stage] : times.size();
    most = std::max(most,
                    std::accumulate(times.begin() + static_cast<std::ptrdiff_t>(from),
                                    times.begin() + static_cast<std::ptrdiff_t>(to), int64_t{0}));
    from = to;
  }
  return most;
}

TEST(SplitPoints, AreWithinFivePercentOfTheBestOfAllCuts) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    ModuleTree tree;
    std::vector<int64_t> times;
    tree.add_module({.name = ""});
    const int size = 3 + static_cast<int>(random() % 10);
    for (int number = 0; number < size; ++number) {
      times.push_back(1 + static_cast<int64_t>(random() % 1000));
      const int weight = tree.add_parameter(fmt::format("{}.weight", number), 4);
      tree.add_module(
          {.name = std::to_string(number), .parameters = {weight}, .time_ns = times.back()}, 0);
    }
    for (int number = 1; number < size; ++number) {
      tree.add_tensor({.bytes = static_cast<int64_t>(random() % 1000),
                       .producer = number,
                       .consumers = {number + 1}});
    }

    std::vector<size_t> found;
    for (const std::string& name : split_points(tree, 3)) found.push_back(std::stoul(name));

    ASSERT_EQ(found.size(), 2);
    int64_t best = heaviest(times, {});
    for (size_t one = 1; one < times.size() - 1; ++one) {
      for (size_t other = one + 1; other < times.size(); ++other) {
        best = std::min(best, heaviest(times, {one, other}));
      }
    }
    EXPECT_LE(heaviest(times, found), best * 105 / 100 + 1);
  }
}

}  // namespace
}  // namespace smp::partition
