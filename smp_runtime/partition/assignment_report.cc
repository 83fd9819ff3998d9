// SPDX-License-Identifier: Apache-2.0
// Description of an assignment for people.
#include <algorithm>
#include <limits>
#include <set>

#include <fmt/format.h>

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
  const std::int64_t total = sum(amounts);
  if (total == 0) return 1;
  return static_cast<double>(*std::max_element(amounts.begin(), amounts.end())) *
         static_cast<double>(amounts.size()) / static_cast<double>(total);
}

/// True, by node, for a module that is on one partition with all below it.
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

constexpr int kAnyDepth = std::numeric_limits<int>::max();

/// A line of the tree: a module, or several siblings that follow each other.
struct TreeRow {
  int depth = 0;
  std::string first;         ///< module
  std::string last;          ///< the same, unless there are several
  int modules = 1;           ///< siblings
  std::set<int> partitions;  ///< of all that the line stands for
  std::int64_t bytes = 0;
  std::int64_t time_ns = 0;
  std::string note;
};

/// One more sibling, or several, in the line of those before.
void merge_into(TreeRow& row, const TreeRow& next) {
  row.last = next.last;
  row.modules += next.modules;
  row.partitions.insert(next.partitions.begin(), next.partitions.end());
  row.bytes += next.bytes;
  row.time_ns += next.time_ns;
  row.note.clear();
}

class TreeReport {
 public:
  TreeReport(const Assignment& assignment, const ModuleTree& tree)
      : tree_(tree),
        partition_(static_cast<size_t>(tree.size())),
        below_(static_cast<size_t>(tree.size())),
        bytes_(subtree_sums(tree, own_parameter_bytes(tree))),
        times_(subtree_sums(tree, own_times(tree))),
        whole_(undivided(assignment, tree)) {
    for (int node = tree.size() - 1; node >= 0; --node) {
      partition_[node] = assignment.at(tree.module(node).name);
      below_[node].insert(partition_[node]);
      if (node > 0) below_[tree.parent(node)].insert(below_[node].begin(), below_[node].end());
    }
  }

  /// Modules down to the given depth, without those below one that is whole on one partition. Where
  /// `folded`, siblings that follow each other and are whole on one partition share a line.
  [[nodiscard]] std::vector<TreeRow> rows(int levels, bool folded) const {
    std::vector<TreeRow> made;
    int before = -1;  // the node of the last row, if others may share it
    for (const int node : tree_.preorder()) {
      const int level = depth(tree_, node);
      if (level > levels || (node != 0 && whole_[tree_.parent(node)])) continue;
      const TreeRow row = row_of(node, level, level == levels);
      const bool shared = before > 0 && whole_[node] &&
                          tree_.parent(node) == tree_.parent(before) &&
                          partition_[node] == partition_[before];
      if (shared) {
        merge_into(made.back(), row);
      } else {
        made.push_back(row);
      }
      before = folded && whole_[node] ? node : -1;
    }
    return made;
  }

  static std::string text(const std::vector<TreeRow>& rows) {
    std::string text;
    for (const TreeRow& row : rows) {
      const std::string label = std::string(2 * static_cast<size_t>(row.depth), ' ') + name(row);
      text +=
          fmt::format("\n{:<50} {:<13}  {:>12}  {:>5.1f} %{}", label, place(row),
                      human_bytes(row.bytes), percent(row.time_ns, rows.front().time_ns), row.note);
    }
    return text;
  }

 private:
  [[nodiscard]] TreeRow row_of(int node, int level, bool stands_for_all_below) const {
    const std::string name = display_name(tree_.module(node));
    return {.depth = level,
            .first = name,
            .last = name,
            .partitions = stands_for_all_below ? below_[node] : std::set<int>{partition_[node]},
            .bytes = bytes_[node],
            .time_ns = times_[node],
            .note = tree_.module(node).called ? "" : "  (not run itself)"};
  }

  /// "h.0", or "h.0 ... 23: 24 modules".
  static std::string name(const TreeRow& row) {
    if (row.modules == 1) return row.first;
    return fmt::format("{} ... {}: {} modules", row.first, row.last.substr(row.last.rfind('.') + 1),
                       row.modules);
  }

  /// "partition   0", or "partitions 0, 1".
  static std::string place(const TreeRow& row) {
    if (row.partitions.size() == 1) return fmt::format("partition {:>3}", *row.partitions.begin());
    return fmt::format("partitions {}", fmt::join(row.partitions, ", "));
  }

  const ModuleTree& tree_;
  std::vector<int> partition_;
  std::vector<std::set<int>> below_;  ///< partitions of the subtree
  std::vector<std::int64_t> bytes_;   ///< of the subtree
  std::vector<std::int64_t> times_;
  std::vector<bool> whole_;
};

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

std::vector<std::int64_t> times_of(const Assignment& assignment, const ModuleTree& tree) {
  const std::vector<std::int64_t> own = own_times(tree);
  std::vector<std::int64_t> times(assignment.partitions, 0);
  for (int node = 0; node < tree.size(); ++node) {
    times[assignment.at(tree.module(node).name)] += own[node];
  }
  return times;
}

std::string balance_line(const Assignment& assignment, const ModuleTree& tree) {
  const std::vector<std::int64_t> parameters = parameter_bytes_of(assignment, tree);
  const std::vector<std::int64_t> times = times_of(assignment, tree);
  std::vector<std::int64_t> activations(parameters.size(), 0);
  for (int node = 0; node < tree.size(); ++node) {
    activations[assignment.at(tree.module(node).name)] += tree.module(node).activation_bytes;
  }
  const std::int64_t all = sum(times);
  std::string line = "Partition balance:";
  for (size_t partition = 0; partition < parameters.size(); ++partition) {
    line += fmt::format(" {}: {} parameters, {} activations, {:.1f} % of the time;", partition,
                        human_bytes(parameters[partition]), human_bytes(activations[partition]),
                        percent(times[partition], all));
  }
  return line + fmt::format(" most over mean: parameters {:.2f}, time {:.2f}",
                            imbalance(parameters), imbalance(times));
}

std::string assignment_tree(const Assignment& assignment, const ModuleTree& tree,
                            std::optional<int> most_lines) {
  const TreeReport report(assignment, tree);
  if (!most_lines) return TreeReport::text(report.rows(kAnyDepth, false));
  const size_t most = static_cast<size_t>(std::max(2, *most_lines));
  std::vector<TreeRow> rows = report.rows(kAnyDepth, false);
  if (rows.size() > most) rows = report.rows(kAnyDepth, true);
  const auto deepest = std::max_element(
      rows.begin(), rows.end(),
      [](const TreeRow& left, const TreeRow& right) { return left.depth < right.depth; });
  for (int levels = deepest->depth - 1; rows.size() > most && levels > 0; --levels) {
    rows = report.rows(levels, true);
  }
  while (rows.size() > most) {  // all of one level: the rest becomes one line
    merge_into(rows[rows.size() - 2], rows.back());
    rows.pop_back();
  }
  return TreeReport::text(rows);
}

}  // namespace smp::partition
