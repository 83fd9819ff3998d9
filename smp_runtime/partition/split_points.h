// SPDX-License-Identifier: Apache-2.0
// Where to cut a model into stages that follow each other, for pipelines that know no others.
#pragma once

#include <string>
#include <vector>

#include "smp_runtime/partition/module_tree.h"

namespace smp::partition {

/// The modules, in execution order, with which each of `stages` but the first begins. Of all cuts
/// whose heaviest stage takes at most 105 % of the forward time of the least that is possible,
/// those that the fewest bytes cross. Throws ConfigError for more stages than there are units.
/// O(stages × units²).
std::vector<std::string> split_points(const ModuleTree& tree, int stages);

}  // namespace smp::partition
