// SPDX-License-Identifier: Apache-2.0
// Measures the partitioner for ci/bench: prints one JSON object.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>

#include <nlohmann/json.hpp>

#include "smp_runtime/partition/compat_partitioner.h"
#include "smp_runtime/partition/interval_partitioner.h"
#include "smp_runtime/partition/units.h"
#include "tests/unit/partition/auto_settings.h"
#include "tests/unit/partition/model_corpus.h"

namespace smp::partition {
namespace {

using nlohmann::ordered_json;

struct Ratios {
  double ours = 0;
  double published = 0;
  double layers = 0;
  int empty = 0;  ///< devices without a module, of ours
};

Cost worst_load(const ModuleTree& tree, const std::vector<Cost>& costs,
                const Assignment& assignment) {
  std::vector<Cost> load(assignment.partitions, 0);
  for (int node = 0; node < tree.size(); ++node) {
    load[assignment.at(tree.module(node).name)] += costs[node];
  }
  return *std::max_element(load.begin(), load.end());
}

// The best split of the list of layers, none of them cut: what a 1-D balanced split of a list
// reaches, as DeepSpeed's partition_balanced does for a PipelineModule.
Cost whole_layers(const ModuleTree& tree, const Units& units, int partitions) {
  std::vector<Cost> loads;
  int before = -1;
  for (const Unit& unit : units.list) {
    int layer = unit.node;  // the child of the model or of a list that holds the unit
    while (tree.parent(layer) > 0 && tree.module(tree.parent(layer)).called &&
           tree.parent(tree.parent(layer)) > 0) {
      layer = tree.parent(layer);
    }
    if (layer != before) loads.push_back(0);
    loads.back() += unit.load;
    before = layer;
  }
  const int count = std::min(partitions, static_cast<int>(loads.size()));
  return solve_intervals({.weights = loads}, count)->worst;
}

Ratios compare(const ModuleTree& tree, int partitions, double memory_weight) {
  const AutoOptions options = auto_options(partitions, memory_weight);
  const MemoryModel memory{.state_factor = options.state_factor,
                           .kept_activations = options.step.shape.in_flight()};
  const AutoDecision decision = assign_auto(tree, partitions, options);
  const std::vector<Cost> costs = own_costs(tree, memory_weight, memory);
  const Units units = make_units(tree, memory_weight, memory);
  const Assignment published = make_assignment(
      tree, place_level_by_level(tree, partitions, costs, Containers::kDissolve), partitions);
  const auto optimum = static_cast<double>(decision.contiguous_load);
  return {.ours = static_cast<double>(decision.chosen.worst_load) / optimum,
          .published = static_cast<double>(worst_load(tree, costs, published)) / optimum,
          .layers = static_cast<double>(whole_layers(tree, units, partitions)) / optimum,
          .empty = std::min(partitions, units.size()) - decision.chosen.used_devices};
}

ordered_json quality() {
  ordered_json rows = ordered_json::array();
  const auto add = [&](const std::string& name, int partitions, const Ratios& r) {
    rows.push_back({{"model", name},
                    {"partitions", partitions},
                    {"auto", r.ours},
                    {"compat", r.published},
                    {"layers", r.layers},
                    {"empty", r.empty}});
  };
  for (const int partitions : {2, 4, 8}) {
    for (const auto& [name, tree] : model_corpus()) {
      add(name, partitions, compare(tree, partitions, 0.8));
    }
    Ratios worst;
    for (std::uint32_t seed = 0; seed < 300; ++seed) {
      const Ratios r = compare(random_tree(seed, 60, seed % 2 == 0), partitions, 0.8);
      worst = {.ours = std::max(worst.ours, r.ours),
               .published = std::max(worst.published, r.published),
               .layers = std::max(worst.layers, r.layers),
               .empty = std::max(worst.empty, r.empty)};
    }
    add("300 random trees, worst", partitions, worst);
  }
  return rows;
}

// A deep model: blocks of ten leaves each, with what goes from leaf to leaf.
ModuleTree large_model(int units) {
  ModelBuilder model;
  std::mt19937 random(11);
  model.group("h", false);
  for (int i = 0; i < units; ++i) {
    const std::string block = "h." + std::to_string(i / 10);
    if (i % 10 == 0) model.group(block);
    const std::int64_t size = 1000 + static_cast<int>(random() % 100'000);
    model.leaf(block + "." + std::to_string(i % 10), size, 2000 * size, 1000 + size / 10);
  }
  return model.take();
}

ordered_json speed() {
  const ModuleTree tree = large_model(10'000);
  ordered_json seconds = ordered_json::array();
  for (int round = 0; round < 5; ++round) {
    const auto start = std::chrono::steady_clock::now();
    assign_auto(tree, 64, auto_options(64, 0.8));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    seconds.push_back(took.count());
  }
  return seconds;
}

}  // namespace
}  // namespace smp::partition

int main() {
  const nlohmann::ordered_json result{{"quality", smp::partition::quality()},
                                      {"seconds", smp::partition::speed()}};
  std::printf("%s\n", result.dump().c_str());
  return 0;
}
