// SPDX-License-Identifier: Apache-2.0
// The check before the start (SM_LAUNCH_CHECK, `train --check`): the module smdistributed.check,
// which the job's runner starts as it will start the script.
#pragma once

#include <string>
#include <vector>

#include "entrypoint/config/job_config.h"
#include "entrypoint/plan/entry_point.h"
#include "entrypoint/plan/host_facts.h"

namespace entrypoint {

/// `-m smdistributed.check`.
EntryPoint check_entry_point();

/// Its arguments: whether what it finds fails the job.
std::vector<std::string> check_arguments(CheckPolicy policy);

/// Says why a job that asks for it starts unchecked: Python or torch are missing.
std::string unchecked_warning(const HostFacts& facts);

/// A port for the check's own rendezvous, so that a host that is done with it early does not meet
/// another's when it goes on. Text that is no port stays, for torchrun to refuse.
std::string port_beside(const std::string& port);

/// The job of `train --check`: hosts, processes and network of `job`, with the check in place of
/// the script, its arguments, its packages and its report. Any outlier fails it.
JobConfig make_check_job(JobConfig job);

}  // namespace entrypoint
