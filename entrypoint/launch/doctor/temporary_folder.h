// SPDX-License-Identifier: Apache-2.0
// The folder in which mpirun and its daemons keep their sockets and shared memory.
#pragma once

#include <filesystem>

#include "entrypoint/plan/launch_plan.h"

namespace entrypoint::launch {

/// The folder as Open MPI looks for it: OMPI_MCA_orte_tmpdir_base, TMPDIR, TEMP, TMP, else /tmp.
/// Pure.
std::filesystem::path temporary_folder(const EnvironmentMap& environment);

/// Makes a folder in it, as mpirun will, and removes it. mpirun's own refusal would come with other
/// words for each version. Throws ConfigError. A folder that the command line of the plan names is
/// mpirun's own business.
void try_temporary_folder(const LaunchPlan& plan, const EnvironmentMap& environment);

}  // namespace entrypoint::launch
