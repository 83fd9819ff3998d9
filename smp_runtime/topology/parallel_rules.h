// SPDX-License-Identifier: Apache-2.0
// Rules between settings, apart from the world they run in.
#pragma once

#include "smp_runtime/topology/parallel_config.h"

namespace smp::topology {

/// Throws ConfigError for the first pair of settings that exclude each other or miss a companion.
/// `default_partition_given` tells an explicit 0 from the default.
void check_rules(const ParallelConfig& config, bool default_partition_given);

}  // namespace smp::topology
