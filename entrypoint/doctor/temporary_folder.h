// SPDX-License-Identifier: Apache-2.0
// The folder in which mpirun and its daemons keep their sockets and shared memory.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "entrypoint/config/process_environment.h"

namespace entrypoint {

/// The folder as Open MPI looks for it: OMPI_MCA_orte_tmpdir_base, TMPDIR, TEMP, TMP, else /tmp.
/// Pure.
std::filesystem::path temporary_folder(const EnvironmentMap& environment);

/// Makes a folder in it, as mpirun will, and removes it. mpirun's own refusal would come with other
/// words for each version. Throws ConfigError. A folder that mpirun's command line, `argv`, names
/// is its own business.
void try_temporary_folder(std::span<const std::string> argv, const EnvironmentMap& environment);

}  // namespace entrypoint
