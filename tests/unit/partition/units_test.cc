// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/units.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/partition/model_trees.h"

namespace smp::partition {
namespace {

using testing::ElementsAre;

std::vector<std::string> names(const ModuleTree& tree, const Units& units) {
  std::vector<std::string> found;
  for (const Unit& unit : units.list) found.push_back(tree.module(unit.node).name);
  return found;
}

std::vector<int> as_run(const Units& units) {
  std::vector<int> order(units.size());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

TEST(Units, AreLeavesAndModulesWithParametersOfTheirOwn) {
  TreeBuilder model;
  model.add("stack")
      .add_list("stack.h")
      .add("stack.h.0")
      .add("stack.h.0.fc", 10)
      .add("stack.h.0.out", 10);
  model.add("stack.h.0.act").add("stack.h.1", 5).add("stack.h.1.fc", 10);
  model.add_sharing("head", "stack.h.0.fc");
  const ModuleTree& tree = model.tree();

  const Units units = make_units(tree, 1.0, {.state_factor = 4});

  EXPECT_THAT(names(tree, units),
              ElementsAre("stack.h.0.fc", "stack.h.0.out", "stack.h.1", "stack.h.1.fc"));
  const auto unit_of = [&](const char* name) { return units.of_node[*tree.find(name)]; };
  EXPECT_EQ(unit_of(""), 0) << "the root runs where its first unit does";
  EXPECT_EQ(unit_of("stack"), 0);
  EXPECT_EQ(unit_of("stack.h"), 0);
  EXPECT_EQ(unit_of("stack.h.0"), 0);
  EXPECT_EQ(unit_of("stack.h.0.act"), 0);
  EXPECT_EQ(unit_of("head"), 0) << "with what it shares parameters";
  EXPECT_EQ(unit_of("stack.h.1.fc"), 3);
  EXPECT_EQ(units.list[2].state_bytes, 20);
}

TEST(Units, TogetherTheyAreTheModel) {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    const ModuleTree tree = random_tree(seed, 70, true);

    const Units units = make_units(tree, 0.3, {});

    Cost load = 0;
    std::int64_t time = 0;
    for (const Unit& unit : units.list) {
      load += unit.load;
      time += unit.time_ns;
    }
    const std::vector<Cost> costs = own_costs(tree, 0.3);
    const std::vector<std::int64_t> times = own_times(tree);
    EXPECT_EQ(load, std::accumulate(costs.begin(), costs.end(), Cost{0}));
    EXPECT_EQ(time, std::accumulate(times.begin(), times.end(), std::int64_t{0}));
    for (const int unit : units.of_node) EXPECT_TRUE(unit >= 0 && unit < units.size());
  }
}

// Three layers in a row, and the first one's output once more for the third.
ModuleTree with_a_skip() {
  TreeBuilder model;
  model.add("a", 1).add("b", 1).add("c", 1);
  ModuleTree tree = model.take();
  tree.add_tensor({.bytes = 100, .producer = 0, .consumers = {1}});
  tree.add_tensor({.bytes = 10, .producer = 1, .consumers = {2, 3}});
  tree.add_tensor({.bytes = 7, .producer = 2, .consumers = {3}});
  return tree;
}

TEST(CutBytes, CountWhatIsLiveThereAndBack) {
  const ModuleTree tree = with_a_skip();
  const Units units = make_units(tree, 1.0, {});

  EXPECT_THAT(cut_bytes(tree, units, as_run(units)), ElementsAre(0, 2 * 10, 2 * (10 + 7), 0));
  EXPECT_THAT(cut_bytes(tree, units, std::vector{0, 2, 1}),
              ElementsAre(0, 2 * 10, 2 * (10 + 7), 0));
}

TEST(NarrowOrder, AChainStaysAChain) {
  const ModuleTree tree = with_a_skip();

  EXPECT_THAT(narrow_order(tree, make_units(tree, 1.0, {})), ElementsAre(0, 1, 2));
}

TEST(NarrowOrder, ABranchIsFinishedBeforeTheNextOne) {
  // Run breadth first: both branches' big tensors live side by side; a, a2, b, b2 is narrower.
  TreeBuilder model;
  model.add("in", 1).add("a", 1).add("b", 1).add("a2", 1).add("b2", 1).add("join", 1);
  ModuleTree tree = model.take();
  tree.add_tensor({.bytes = 1, .producer = 1, .consumers = {2, 3}});
  tree.add_tensor({.bytes = 100, .producer = 2, .consumers = {4}});
  tree.add_tensor({.bytes = 100, .producer = 3, .consumers = {5}});
  tree.add_tensor({.bytes = 1, .producer = 4, .consumers = {6}});
  tree.add_tensor({.bytes = 1, .producer = 5, .consumers = {6}});
  const Units units = make_units(tree, 1.0, {});

  const std::vector<int> order = narrow_order(tree, units);

  EXPECT_THAT(order, ElementsAre(0, 1, 3, 2, 4, 5));
  const auto widest = [&](const std::vector<int>& row) {
    const auto bytes = cut_bytes(tree, units, row);
    return *std::max_element(bytes.begin(), bytes.end());
  };
  EXPECT_EQ(widest(as_run(units)), 2 * 200);
  EXPECT_EQ(widest(order), 2 * 101);
}

TEST(NarrowOrder, RespectsWhatReadsWhat) {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    ModuleTree tree = random_tree(seed, 50, true);
    std::mt19937 random(seed);
    for (int i = 0; i < 80; ++i) {
      const int from = static_cast<int>(random() % tree.size());
      const int to = static_cast<int>(random() % tree.size());
      tree.add_tensor(
          {.bytes = static_cast<int>(random() % 50), .producer = from, .consumers = {to}});
    }
    const Units units = make_units(tree, 1.0, {});

    const std::vector<int> order = narrow_order(tree, units);

    std::vector<int> position(units.size(), -1);
    for (int i = 0; i < static_cast<int>(order.size()); ++i) position[order[i]] = i;
    ASSERT_EQ(static_cast<int>(order.size()), units.size());
    for (const Tensor& tensor : tree.tensors()) {
      const int producer = units.of_node[tensor.producer];
      const int reader = units.of_node[tensor.consumers[0]];
      if (producer < reader) {
        EXPECT_LT(position[producer], position[reader]);
      }
    }
  }
}

}  // namespace
}  // namespace smp::partition
