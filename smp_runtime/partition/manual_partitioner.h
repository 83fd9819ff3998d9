// SPDX-License-Identifier: Apache-2.0
// Places modules where their creator asked for.
#pragma once

#include "smp_runtime/partition/assignment.h"

namespace smp::partition {

/// A module goes to its own pin, else to the nearest pin above it, else to `default_partition`.
/// Throws ConfigError for a pin outside [0, partitions), and when modules that share a parameter
/// end on different partitions.
Assignment assign_manual(const ModuleTree& tree, int partitions, int default_partition);

}  // namespace smp::partition
