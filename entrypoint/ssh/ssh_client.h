// SPDX-License-Identifier: Apache-2.0
// ssh to the other hosts of the job: with the job's key, to pinned host keys, never asking.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "entrypoint/process/spawn.h"

namespace entrypoint {

/// Throws ConfigError unless `host` is letters, digits, dots, dashes and underscores, starts with
/// none of the latter three and has at most 253 bytes.
void check_host_name(std::string_view host);

struct SshClientSettings {
  std::filesystem::path folder;  ///< has job_key and known_hosts/
  int port = 22;
  std::string user;
};

/// Pure: the configuration for `ssh -F`. Host keys are looked for in known_hosts/HOST, so that
/// hosts can be pinned one by one, at the same time.
std::string ssh_config_text(const SshClientSettings& settings);

/// Pure: the line of known_hosts/HOST.
std::string known_host_line(std::string_view host, int port, std::string_view public_key);

/// The words before the host name: what mpirun gets as its agent.
std::vector<std::string> ssh_command(const std::filesystem::path& config);

/// Runs `command` through the remote shell. Blocks for at most `limit`. `host` must have passed
/// check_host_name().
Completed run_on_host(const std::filesystem::path& config, std::string_view host,
                      std::string_view command, const std::vector<std::string>& environment,
                      std::chrono::milliseconds limit, std::string_view input = {});

}  // namespace entrypoint
