// SPDX-License-Identifier: Apache-2.0
// Reports by which the nodes of a multi-node job of AWS Batch learn each other's addresses: the
// engine tells all of them the main node's alone.
//
// The main node M listens on the port that its sshd will have; each other node W connects and stays
// connected until all have come. Lines of text, each ending in a newline, of at most 1024 bytes but
// the last one, which grows with the job:
//
//     W: SMP-NODES/1 report JOB NUMBER     NUMBER is its place among the hosts, 1 and up
//     M: SMP-NODES/1 hosts ADDRESS,…       once all have reported, in their order, M's first
//        or SMP-NODES/1 refused REASON
//
// JOB is the engine's id of the job, which nobody else is told: who does not know it is no node.
#pragma once

#include <string>
#include <vector>

#include "entrypoint/config/cluster_resources.h"
#include "entrypoint/config/launch_options.h"
#include "entrypoint/process/process_runner.h"
#include "smp_runtime/core/tcp.h"

namespace entrypoint {

namespace tcp = smp::tcp;

/// Main node's side: the addresses of all `count` nodes, its own first. Throws HostError at the
/// deadline, which names the nodes that have not reported.
std::vector<std::string> collect_reports(tcp::Listener& listener, const std::string& job, int count,
                                         Deadline deadline);

/// The other nodes' side: reports as `number`, again and again until the main node is there, and
/// returns all addresses. Throws HostError when it refuses, and at the deadline.
std::vector<std::string> report_to_main(const std::string& main, int port, const std::string& job,
                                        int number, Deadline deadline);

/// The hosts of a job whose engine names the main one alone. Blocks until all nodes have reported
/// to the main one, for at most the worker timeout. Throws HostError at the deadline, when a report
/// is refused, and when a stop comes first.
std::vector<std::string> gather_hosts(const ClusterJob& cluster, const LaunchOptions& options,
                                      ProcessRunner& runner);

}  // namespace entrypoint
