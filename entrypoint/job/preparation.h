// SPDX-License-Identifier: Apache-2.0
// What has to be done on this host before its program starts.
#pragma once

#include <optional>

#include "entrypoint/fetch/transfer_module.h"
#include "entrypoint/runners/job_runner.h"

namespace entrypoint {

/// Writes the plan's files, makes the entry point executable, installs what the code asks for, and
/// waits for the names of all hosts. None: all done. A value: an installation failed or a stop
/// came, and this is how the job ends. Throws HostError when names do not resolve in time or
/// CodeArtifact cannot be reached, ConfigError when it refuses.
std::optional<Outcome> prepare(const LaunchPlan& plan, const JobSettings& settings,
                               const fetch::TransferSettings& transfer, ProcessRunner& runner);

/// Section "Invoking user script" of the log: the training environment, every exported variable and
/// the command, secrets masked.
void log_invocation(const LaunchPlan& plan);

}  // namespace entrypoint
