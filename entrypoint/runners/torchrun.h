// SPDX-License-Identifier: Apache-2.0
// torchrun on this host, its workers below it; every host of the job runs its own.
#pragma once

#include <vector>

#include <sys/types.h>

#include "entrypoint/runners/job_runner.h"

namespace entrypoint {

/// Starts torchrun and blocks until it has ended. A stop goes to the workers, not to torchrun: told
/// itself, torchrun gives them 30 seconds at most and ends with an error however well they end.
/// When the workers have ended by themselves it does so, too, and with success if they had. Before
/// it has workers torchrun gets the stop. SIGUSR1 and SIGUSR2 go to the workers alone.
Outcome run_torchrun(ProcessRunner& runner, const Command& command);

/// The workers among the descendants of `root`: torchrun makes each the leader of a session, and
/// itself is in the process group of a child of `root`. Reads /proc.
std::vector<pid_t> torchrun_workers(pid_t root);

}  // namespace entrypoint
