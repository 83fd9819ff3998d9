// SPDX-License-Identifier: Apache-2.0
// `train --rank-exec -- CMD…`: the parent of one MPI rank.
#pragma once

#include <string>
#include <vector>

namespace entrypoint::launch {

/// Starts the command in a process group of its own, with this host's environment, and ends as it
/// ends: with its exit code, or by its signal.
///
/// SIGUSR1 is the launcher's stop for ranks (mpirun forwards it to all of them; SIGTERM would make
/// mpirun kill them a second later): the group gets SIGTERM, once, however many stops arrive.
/// SIGTERM does the same; SIGINT, SIGHUP and SIGUSR2 are passed on. When mpirun's daemon dies, the
/// group is killed. Blocks signals for good: nothing else may run in this process. Throws as
/// spawn().
int run_rank(const std::vector<std::string>& command);

}  // namespace entrypoint::launch
