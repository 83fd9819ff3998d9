// SPDX-License-Identifier: Apache-2.0
// The mpirun line of the MPI runner, on the master host.
#pragma once

#include "entrypoint/plan/mpirun_line.h"

namespace entrypoint {

/// Pure. Options in the reference launcher's order, each key once, the user's custom ones winning;
/// variables that tell hosts apart are not exported; secrets go by name only.
MpiCommand make_mpi_command(const MpiCommandInput& input);

}  // namespace entrypoint
