// SPDX-License-Identifier: Apache-2.0
// The keys of one host in a job on several, and the files that ssh and sshd read them from; pairs
// are made by ssh-keygen, and public keys that came from elsewhere are checked.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "entrypoint/plan/runner_choice.h"
#include "entrypoint/process/launch_folder.h"
#include "entrypoint/ssh/sshd.h"

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

/// "TYPE BASE64" of a public key line, comment dropped. None unless the line is exactly that, with
/// a known type and nothing a shell, authorized_keys or known_hosts could take for something else.
std::optional<std::string> parse_public_key(std::string_view line);

/// Makes an ed25519 pair without passphrase in `private_file` (and `.pub`), and returns the public
/// half. Throws HostError with ssh-keygen's own words.
std::string make_key(const std::filesystem::path& private_file,
                     std::span<const std::string> environment);

/// The public half of a private key file. Throws ConfigError when it is none, or needs a
/// passphrase.
std::string public_key_of(const std::filesystem::path& private_file,
                          std::span<const std::string> environment);

}  // namespace entrypoint
