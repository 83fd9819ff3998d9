// SPDX-License-Identifier: Apache-2.0
// Work on this host before its program starts.
#pragma once

#include <optional>

#include "entrypoint/fetch/transfer_module.h"
#include "entrypoint/plan/launch_plan.h"
#include "entrypoint/plan/secrets.h"
#include "entrypoint/runners/job_runner.h"

namespace entrypoint {

/// Puts the certificate authorities of machine and job into the file `joined`. A machine without a
/// file of its own adds none. Throws ConfigError when the job's file cannot be read or holds no
/// certificate, HostError when the result cannot be written.
void join_certificates(const ExtraCertificates& certificates);

struct Preparation {
  const JobSettings& settings;
  const fetch::TransferSettings& transfer;
  ProcessRunner& processes;
  const Secrets& secrets;
};

/// Writes the plan's files, makes the entry point executable, installs what the code asks for, and
/// waits for the names of all hosts. None: all done. A value: an installation failed or a stop
/// came, and this is how the job ends. Throws HostError when names do not resolve in time or
/// CodeArtifact cannot be reached, ConfigError when it refuses.
std::optional<Outcome> prepare(const LaunchPlan& plan, const Preparation& means);

}  // namespace entrypoint
