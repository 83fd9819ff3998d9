// SPDX-License-Identifier: Apache-2.0
// The partition file: a decision that people read and write. It names a module only where that is
// to run on another partition than its parent, so that moving a container moves what is in it.
#pragma once

#include <string>
#include <string_view>

#include "smp_runtime/partition/assignment.h"
#include "smp_runtime/partition/module_tree.h"

namespace smp::partition {

/// The text of the file: the root, and each module whose partition is not its parent's in `tree`.
/// `summary`, for people: JobPartition::summary.
std::string partition_file_text(const Assignment& assignment, const ModuleTree& tree,
                                const std::string& summary);

/// The decision that `text` holds for the model of `tree`, all of whose modules count as run but
/// containers. A module that it does not name goes to the partition of its parent.
///
/// Throws ConfigError that starts with `where`, and names the entry and what was expected: text
/// that Assignment::from_json() refuses, another number of partitions, unknown modules, no root,
/// owners of a shared parameter on several partitions, a partition that would run nothing.
Assignment read_partition_file(std::string_view text, const std::string& where,
                               const ModuleTree& tree, int partitions);

/// The summary in `text`, on one line of ASCII, which is of what the partitioner wrote and not of
/// what people have made of it since; empty if there is none. Throws ConfigError as
/// read_partition_file() does, as far as that needs no model.
std::string read_partition_summary(std::string_view text, const std::string& where, int partitions);

}  // namespace smp::partition
