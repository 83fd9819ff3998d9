// SPDX-License-Identifier: Apache-2.0
// The master's view of one worker: from "not even a name" to "its ssh lets us in". Blocks, so it
// runs as one helper process for each worker.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "entrypoint/process/process_runner.h"
#include "entrypoint/ssh/job_status.h"
#include "smp_runtime/core/job_secret.h"

namespace entrypoint {

struct PeerRequest {
  std::string host;
  int port = 22;
  std::string job;                       ///< job_digest()
  std::string job_key;                   ///< public half; empty: a pair was mounted, no exchange
  std::optional<smp::JobSecret> secret;  ///< that all hosts were given; none: they trust each other
  std::string rank_secret;               ///< text of the one for ranks, told over ssh
  std::filesystem::path folder;          ///< known_hosts/HOST is written there
  std::filesystem::path ssh_config;
  std::vector<std::string> environment;
};

/// Returns once the host has taken the ranks' secret over ssh (none), or the host says that it
/// failed before its ranks could start. Throws HostError at the deadline: how far it got (name,
/// TCP, key exchange, ssh) and what the last answer was.
std::optional<JobStatus> wait_for_peer(const PeerRequest& request, Deadline deadline);

/// Tells a host that may not have its sshd yet that there will be no ranks. Throws HostError at the
/// deadline.
void tell_peer(const PeerRequest& request, const StatusDelivery& delivery, const JobStatus& status,
               Deadline deadline);

/// Blocks until the name has an address. Throws HostError at the deadline.
void wait_for_name(const std::string& host, Deadline deadline);

/// Blocks until something accepts connections there. Throws HostError at the deadline.
void wait_for_port(const std::string& host, int port, Deadline deadline);

}  // namespace entrypoint
