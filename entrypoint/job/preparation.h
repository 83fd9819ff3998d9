// SPDX-License-Identifier: Apache-2.0
// Work on this host before its program starts, and what the log says of it.
#pragma once

#include <optional>

#include "entrypoint/fetch/transfer_module.h"
#include "entrypoint/plan/launch_plan.h"
#include "entrypoint/plan/secrets.h"
#include "entrypoint/runners/job_runner.h"

namespace entrypoint {

/// Logs facts of the host, the decisions of the plan, its notes and warnings. Log readers search
/// for some of these lines, here and below: they are the reference's, word by word.
void log_summary(const JobConfig& job, const HostFacts& facts, const LaunchPlan& plan);

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

/// Logs the section "Invoking user script": the training environment, every exported variable and
/// the command.
void log_invocation(const LaunchPlan& plan, const Secrets& secrets);

}  // namespace entrypoint
