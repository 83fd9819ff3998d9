// SPDX-License-Identifier: Apache-2.0
// The hosts of a job whose engine names the main one alone.
#pragma once

#include <string>
#include <vector>

#include "entrypoint/config/cluster_resources.h"
#include "entrypoint/config/launch_options.h"
#include "entrypoint/process/process_runner.h"

namespace entrypoint {

/// Blocks until all nodes have reported to the main one, for at most the worker timeout. Throws
/// HostError at the deadline, when a report is refused, and when a stop comes first.
std::vector<std::string> gather_hosts(const ClusterJob& cluster, const LaunchOptions& options,
                                      ProcessRunner& runner);

}  // namespace entrypoint
