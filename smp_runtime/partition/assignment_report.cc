// SPDX-License-Identifier: Apache-2.0
// What people read about an assignment.
#include <algorithm>
#include <numeric>

#include "smp_runtime/core/error.h"
#include "smp_runtime/partition/assignment.h"
#include "smp_runtime/partition/cost_model.h"

namespace smp::partition {
namespace {

int depth(const ModuleTree& tree, int node) {
  int steps = 0;
  for (; node != 0; node = tree.parent(node)) ++steps;
  return steps;
}

// From each node's own amounts. Parameters used twice below a node count once for it.
std::vector<std::int64_t> subtree_sums(const ModuleTree& tree, std::vector<std::int64_t> own) {
  for (int node = tree.size() - 1; node > 0; --node) own[tree.parent(node)] += own[node];
  return own;
}

double percent(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

/// The largest over the mean; 1 where there is nothing.
double imbalance(const std::vector<std::int64_t>& amounts) {
  const auto sum = std::accumulate(amounts.begin(), amounts.end(), std::int64_t{0});
  if (sum == 0) return 1;
  return static_cast<double>(*std::max_element(amounts.begin(), amounts.end())) *
         static_cast<double>(amounts.size()) / static_cast<double>(sum);
}

/// Whether a module and all below it are on one partition, by node.
std::vector<bool> undivided(const Assignment& assignment, const ModuleTree& tree) {
  std::vector<bool> whole(static_cast<size_t>(tree.size()), true);
  for (int node = tree.size() - 1; node > 0; --node) {
    const int parent = tree.parent(node);
    const bool same =
        assignment.at(tree.module(node).name) == assignment.at(tree.module(parent).name);
    if (!same || !whole[static_cast<size_t>(node)]) whole[static_cast<size_t>(parent)] = false;
  }
  return whole;
}

}  // namespace

std::vector<std::int64_t> parameter_bytes_of(const Assignment& assignment, const ModuleTree& tree) {
  const std::vector<std::int64_t> own = own_parameter_bytes(tree);
  std::vector<std::int64_t> bytes(assignment.partitions, 0);
  for (int node = 0; node < tree.size(); ++node) {
    bytes[assignment.at(tree.module(node).name)] += own[node];
  }
  return bytes;
}

std::string assignment_line(const Assignment& assignment, const ModuleTree& tree) {
  std::string line = "Partition assignments:";
  for (const int node : tree.preorder()) {
    const Module& module = tree.module(node);
    const int partition = assignment.at(module.name);
    if (node != 0 && assignment.at(tree.module(tree.parent(node)).name) == partition) continue;
    line += fmt::format(" {}={}", display_name(module), partition);
  }
  line += "; other modules run with their parent; parameters";
  const std::vector<std::int64_t> bytes = parameter_bytes_of(assignment, tree);
  for (size_t partition = 0; partition < bytes.size(); ++partition) {
    line += fmt::format(" {}:{}", partition, human_bytes(bytes[partition]));
  }
  return line;
}

std::string human_bytes(std::int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double amount = static_cast<double>(bytes);
  const char* unit = "KiB";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
    amount /= 1024;
    unit = next;
    if (amount < 1024) break;
  }
  return fmt::format("{:.1f} {}", amount, unit);
}

std::string balance_line(const Assignment& assignment, const ModuleTree& tree) {
  const std::vector<std::int64_t> own = own_times(tree);
  const std::vector<std::int64_t> parameters = parameter_bytes_of(assignment, tree);
  std::vector<std::int64_t> activations(parameters.size(), 0);
  std::vector<std::int64_t> times(parameters.size(), 0);
  for (int node = 0; node < tree.size(); ++node) {
    const int partition = assignment.at(tree.module(node).name);
    activations[partition] += tree.module(node).activation_bytes;
    times[partition] += own[node];
  }
  const std::int64_t all = std::accumulate(own.begin(), own.end(), std::int64_t{0});
  std::string line = "Partition balance:";
  for (size_t partition = 0; partition < parameters.size(); ++partition) {
    line += fmt::format(" {}: {} parameters, {} activations, {:.1f} % of the time;", partition,
                        human_bytes(parameters[partition]), human_bytes(activations[partition]),
                        percent(times[partition], all));
  }
  return line + fmt::format(" most over mean: parameters {:.2f}, time {:.2f}",
                            imbalance(parameters), imbalance(times));
}

std::string assignment_tree(const Assignment& assignment, const ModuleTree& tree) {
  const std::vector<std::int64_t> bytes = subtree_sums(tree, own_parameter_bytes(tree));
  const std::vector<std::int64_t> times = subtree_sums(tree, own_times(tree));
  const std::vector<bool> whole = undivided(assignment, tree);
  std::string text;
  for (const int node : tree.preorder()) {
    if (node != 0 && whole[static_cast<size_t>(tree.parent(node))]) continue;
    const Module& module = tree.module(node);
    const std::string label = std::string(2 * depth(tree, node), ' ') + display_name(module);
    text += fmt::format("\n{:<50} partition {:>3}  {:>12}  {:>5.1f} %{}", label,
                        assignment.at(module.name), human_bytes(bytes[node]),
                        percent(times[node], times[0]), module.called ? "" : "  (not run itself)");
  }
  return text;
}

}  // namespace smp::partition
