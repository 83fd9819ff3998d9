// SPDX-License-Identifier: Apache-2.0
// The mpirun line of the SMDDP runner, on the master host: for scripts written for Amazon's
// data-parallel library, and for native DDP over it.
#pragma once

#include "entrypoint/plan/mpirun_line.h"

namespace entrypoint {

/// Pure. Options in the reference launcher's order, each key once, the user's custom ones winning.
/// No SM_* is exported: each host's `train` gives its ranks what it knows itself. Ranks get RANK,
/// LOCAL_RANK, WORLD_SIZE and LOCAL_WORLD_SIZE. `input.custom` are the runner's own options.
MpiCommand make_smddp_command(const MpiCommandInput& input);

}  // namespace entrypoint
