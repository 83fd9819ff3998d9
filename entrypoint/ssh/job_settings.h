// SPDX-License-Identifier: Apache-2.0
// Settings of a job from the launcher's options and the host, for all its ways.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace entrypoint {

struct JobSettings {
  std::chrono::milliseconds stop_after{110'000};      ///< from the stop signal to the kill
  std::chrono::milliseconds worker_timeout{900'000};  ///< for the other hosts to come up
  int ssh_port = 22;
  std::filesystem::path ssh_key;  ///< mounted private key; empty: keys are exchanged
  std::string job_name;           ///< tells two jobs with equal host names apart; may be empty
  std::string cluster_job;        ///< of an engine whose jobs share hosts; empty elsewhere
  bool wait_for_names = true;     ///< false in Studio's local mode, where names do not resolve
  std::vector<std::string> listen_addresses;  ///< for sshd; empty: all
  std::vector<std::string> inherited;         ///< our own environment

  /// By which hosts of this job know each other.
  [[nodiscard]] std::string digested_name() const { return job_name + cluster_job; }
};

}  // namespace entrypoint
