// SPDX-License-Identifier: Apache-2.0
// The decision of a partitioner: which partition runs each module.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "smp_runtime/partition/module_tree.h"

namespace smp::partition {

struct Assignment {
  int partitions = 1;
  std::map<std::string, int> partition_of;  ///< by module name; the root's is empty

  bool operator==(const Assignment&) const = default;

  /// Throws InternalError for a name that is not in it.
  [[nodiscard]] int at(const std::string& module) const;

  /// {"format": 1, "partitions": 2, "modules": {"": 0, "fc": 1}}, with all modules.
  [[nodiscard]] std::string to_json() const;

  /// Throws ConfigError that starts with `where` and names the entry for broken or foreign text.
  static Assignment from_json(std::string_view text, const std::string& where);
};

/// From a partition per node of `tree`.
Assignment make_assignment(const ModuleTree& tree, const std::vector<int>& partition_of_node,
                           int partitions);

/// Throws ConfigError unless `assignment` names exactly the modules of `tree`, has `partitions`
/// partitions, and puts all owners of a shared parameter on one of them (the message names two
/// modules that disagree).
void check_fits(const Assignment& assignment, const ModuleTree& tree, int partitions);

/// Parameter bytes on each partition, shared ones once.
std::vector<std::int64_t> parameter_bytes_of(const Assignment& assignment, const ModuleTree& tree);

/// Time of a forward on each partition, in the unit of the trace (ns, or what was counted).
std::vector<std::int64_t> times_of(const Assignment& assignment, const ModuleTree& tree);

/// One line beginning "Partition assignments:" that names every module whose partition is not its
/// parent's, and the share of parameter bytes of each partition. Users search logs for it.
std::string assignment_line(const Assignment& assignment, const ModuleTree& tree);

/// One line beginning "Partition balance:": for each partition its parameters and activations, and
/// its share of the forward time; then how far the fullest and the slowest are above the mean.
std::string balance_line(const Assignment& assignment, const ModuleTree& tree);

/// 1024 → "1.0 KiB".
std::string human_bytes(std::int64_t bytes);

/// The tree, one module a line behind a line break: indentation, name, partition, parameter bytes
/// of its subtree and its share of the forward time. What is below a module that is whole on one
/// partition is left out.
///
/// With `most_lines` (at least 2) a longer tree is folded: siblings that follow each other on one
/// partition share the line "h.0 ... 23: 24 modules"; if that is not enough, the deepest levels are
/// left out, and a module says which partitions are below it.
std::string assignment_tree(const Assignment& assignment, const ModuleTree& tree,
                            std::optional<int> most_lines = {});

/// A module goes to its own pin, else to the nearest pin above it, else to `default_partition`.
/// Throws ConfigError for a pin outside [0, partitions), and when modules that share a parameter
/// end on different partitions.
Assignment assign_manual(const ModuleTree& tree, int partitions, int default_partition);

}  // namespace smp::partition
