// SPDX-License-Identifier: Apache-2.0
// What people read about an assignment.
#include "smp_runtime/core/error.h"
#include "smp_runtime/partition/assignment.h"
#include "smp_runtime/partition/cost_model.h"

namespace smp::partition {
namespace {

std::string human(std::int64_t bytes) {
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

int depth(const ModuleTree& tree, int node) {
  int steps = 0;
  for (; node != 0; node = tree.parent(node)) ++steps;
  return steps;
}

// Parameters used twice below a node count once for it.
std::vector<std::int64_t> subtree_bytes(const ModuleTree& tree) {
  std::vector<std::int64_t> bytes = own_parameter_bytes(tree);
  for (int node = tree.size() - 1; node > 0; --node) bytes[tree.parent(node)] += bytes[node];
  return bytes;
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
    line += fmt::format(" {}:{}", partition, human(bytes[partition]));
  }
  return line;
}

std::string assignment_tree(const Assignment& assignment, const ModuleTree& tree) {
  const std::vector<std::int64_t> bytes = subtree_bytes(tree);
  const std::vector<bool> whole = undivided(assignment, tree);
  std::string text;
  for (const int node : tree.preorder()) {
    if (node != 0 && whole[static_cast<size_t>(tree.parent(node))]) continue;
    const Module& module = tree.module(node);
    const std::string label = std::string(2 * depth(tree, node), ' ') + display_name(module);
    text += fmt::format("\n{:<50} partition {:>3}  {:>12}{}", label, assignment.at(module.name),
                        human(bytes[node]), module.called ? "" : "  (not run itself)");
  }
  return text;
}

}  // namespace smp::partition
