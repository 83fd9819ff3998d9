// SPDX-License-Identifier: Apache-2.0
// The job's own ssh server: public keys only, no PAM, no forwarding, one user, gone with the job;
// and the settings of the job that it and all its runners go by.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "entrypoint/process/launch_folder.h"
#include "entrypoint/process/process_runner.h"
#include "smp_runtime/core/job_secret.h"
#include "smp_runtime/core/tcp.h"

namespace entrypoint {

namespace tcp = smp::tcp;

/// Settings of a job from the launcher's options and the host, for all its runners.
struct JobSettings {
  std::chrono::milliseconds stop_after{110'000};      ///< from the stop signal to the kill
  std::chrono::milliseconds worker_timeout{900'000};  ///< for the other hosts to come up
  int ssh_port = 22;
  std::filesystem::path ssh_key;         ///< mounted private key; empty: keys are exchanged
  std::optional<smp::JobSecret> secret;  ///< that all hosts were given; none: a trusted network
  std::string job_name;        ///< tells two jobs with equal host names apart; may be empty
  std::string cluster_job;     ///< of an engine whose jobs share hosts; empty elsewhere
  bool wait_for_names = true;  ///< false in Studio's local mode, where names do not resolve
  std::vector<std::string> listen_addresses;  ///< for sshd; empty: all
  std::vector<std::string> own_addresses;     ///< this host's, loopback included
  std::vector<std::string> inherited;         ///< our own environment

  /// By which hosts of this job know each other.
  [[nodiscard]] std::string digested_name() const { return job_name + cluster_job; }
};

/// Each session finds our private folder under this name.
inline constexpr const char* kFolderVariable = "SMP_LAUNCH_FOLDER";
/// File of the folder with the secret of the job's ranks.
inline constexpr const char* kSecretFile = "job_secret";

struct SshdSettings {
  std::filesystem::path folder;  ///< has host_key and authorized_keys
  int port = 22;
  std::string user;
  std::vector<std::string> listen_addresses;  ///< empty: all
  int hosts = 2;                              ///< of the job
  /// PATH and LD_LIBRARY_PATH of the sessions: where mpirun's daemon is found. NAME=value.
  std::vector<std::string> session_environment;
};

/// The variables of `environment` that a session needs before anything of ours runs in it.
std::vector<std::string> session_environment(const std::vector<std::string>& environment);

/// Pure: sshd_config.
std::string sshd_config_text(const SshdSettings& settings);

/// One line for authorized_keys: the key may run commands and nothing else, from `addresses` only
/// when there are any. Pure.
std::string authorized_key_line(std::string_view public_key,
                                const std::vector<std::string>& addresses);

/// 22, where sshd may listen there; 2222 for users who may not open low ports. Equal on hosts that
/// run the same image in the same way.
int default_ssh_port();

/// For what hosts tell each other before sshd has the port, which it takes over right after.
/// Throws HostError.
tcp::Listener listen_at_ssh_port(const std::vector<std::string>& addresses, int port);

/// The name of the user we are. Throws ConfigError for a uid that /etc/passwd does not know, for
/// ssh refuses to work without one.
std::string current_user();

/// /usr/sbin/sshd, else the first on `path`; empty when there is none.
std::filesystem::path find_sshd(std::string_view path);

/// Writes the configuration for a job of `hosts` into the folder and starts sshd. Throws
/// ConfigError when there is none, and for a root who is the only user of its namespace.
ChildId start_sshd(ProcessRunner& runner, const LaunchFolder& folder, const JobSettings& job,
                   int hosts);

}  // namespace entrypoint
