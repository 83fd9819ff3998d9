// SPDX-License-Identifier: Apache-2.0
// Reports by which the nodes of a multi-node job of AWS Batch learn each other's addresses: the
// engine tells all of them the main node's alone.
//
// The main node M listens on the port that its sshd will have; each other node W connects and stays
// connected until all have come. Lines of text, each ending in a newline, of at most 1024 bytes but
// the last one, which grows with the job:
//
//     M: SMP-NODES/2 main
//     W: SMP-NODES/2 report JOB NUMBER     NUMBER is its place among the hosts, 1 and up
//     M: SMP-NODES/2 hosts ADDRESS,…       once all have reported, in their order, M's first
//        or SMP-NODES/2 refused REASON
//
// Nodes that were given the job's secret prove it with each line (conversation.h). Else whoever
// knows JOB, the engine's id of the job, which goes over the network, is taken for a node.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "entrypoint/config/cluster_resources.h"
#include "entrypoint/config/launch_options.h"
#include "entrypoint/process/process_runner.h"
#include "entrypoint/ssh/conversation.h"

namespace entrypoint {

/// A job as its nodes know it.
struct NodeJob {
  std::string id;
  int count = 0;  ///< of its nodes
  std::optional<smp::JobSecret> secret;
};

/// The number of a node that reports, from 1 to below the job's count; none: `why` says what is
/// wrong with the line.
std::optional<int> parse_report(std::string_view line, const NodeJob& job, std::string& why);

/// Main node's side: the addresses of all nodes, its own first. A node that reports again, since it
/// was started again, counts once its earlier connection has ended. Throws HostError at the
/// deadline, which names the nodes that have not reported.
std::vector<std::string> collect_reports(tcp::Listener& listener, const NodeJob& job,
                                         Deadline deadline);

/// The other nodes' side: reports as `number`, again and again until the main node is there, and
/// returns all addresses. Throws HostError when it refuses, and at the deadline.
std::vector<std::string> report_to_main(const std::string& main, int port, const NodeJob& job,
                                        int number, Deadline deadline);

/// The hosts of a job whose engine names the main one alone. Blocks until all nodes have reported
/// to the main one, for at most the worker timeout. Throws HostError at the deadline, when a report
/// is refused, and when a stop comes first.
std::vector<std::string> gather_hosts(const ClusterJob& cluster, const LaunchOptions& options,
                                      const std::optional<smp::JobSecret>& secret,
                                      ProcessRunner& runner);

}  // namespace entrypoint
