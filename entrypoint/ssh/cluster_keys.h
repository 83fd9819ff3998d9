// SPDX-License-Identifier: Apache-2.0
// The keys of one host in a job on several, and the files that ssh and sshd read them from.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "entrypoint/plan/runner_choice.h"
#include "entrypoint/process/launch_folder.h"
#include "entrypoint/ssh/job_settings.h"

namespace entrypoint {

/// With a mounted pair every host has the same: it is job key and host key at once, so that holding
/// it proves a host to the master as well as the master to a host.
class ClusterKeys {
 public:
  /// Makes this host's key and, on the master, the job's; or takes the mounted pair. Throws.
  ClusterKeys(const RunnerChoice& runner, const JobSettings& settings);

  [[nodiscard]] const LaunchFolder& folder() const { return folder_; }
  [[nodiscard]] bool is_mounted() const { return mounted_; }
  [[nodiscard]] const std::string& host_key() const { return host_key_; }
  /// Public half of the key that opens this host's sshd; empty on a worker before the exchange.
  [[nodiscard]] const std::string& job_key() const { return job_key_; }
  [[nodiscard]] const std::filesystem::path& ssh_config() const { return ssh_config_; }

  /// Lets the holder of `job_key` log in here, from `addresses` (any, if there are none).
  void authorize(const std::string& job_key, const std::vector<std::string>& addresses);

 private:
  LaunchFolder folder_;
  bool mounted_ = false;
  std::string host_key_;
  std::string job_key_;
  std::filesystem::path ssh_config_;
};

}  // namespace entrypoint
