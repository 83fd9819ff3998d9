// SPDX-License-Identifier: Apache-2.0
// What a user may set by environment: the one table of it.
//
//   variable            default  meaning
//   SMDDP_SLOT_BYTES    524288   of shared memory, four times for each rank, for data on its way
//   SMDDP_SMALL_BYTES    32768   up to here a collective is one step of all ranks
#pragma once

#include "smp_runtime/collectives/communicator.h"

namespace smp::dataparallel {

/// Reads the environment; the only place of the backend that does.
/// Throws ConfigError for a value that is no positive number of at most 1 GiB.
collectives::Tuning tuning_from_environment();

}  // namespace smp::dataparallel
