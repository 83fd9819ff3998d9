// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/ssh/cluster_keys.h"

#include <algorithm>

#include "entrypoint/process/spawn.h"
#include "entrypoint/ssh/ssh_client.h"
#include "entrypoint/ssh/sshd.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/file.h"

namespace entrypoint {
namespace {

constexpr std::string_view kTypes[] = {"ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384",
                                       "ecdsa-sha2-nistp521", "ssh-rsa"};
constexpr std::size_t kLongestKey = 2048;  // [bytes] of base64; RSA with 8192 bits has 1400
constexpr std::chrono::seconds kKeygenLimit{30};

bool is_base64(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' ||
         c == '/' || c == '=';
}

Completed keygen(std::vector<std::string> arguments, std::span<const std::string> environment) {
  arguments.insert(arguments.begin(), "ssh-keygen");
  return run_command(
      {.argv = std::move(arguments), .environment = {environment.begin(), environment.end()}},
      kKeygenLimit);
}

}  // namespace

ClusterKeys::ClusterKeys(const RunnerChoice& runner, const JobSettings& settings)
    : mounted_(!settings.ssh_key.empty()) {
  const std::filesystem::path host_file = folder_.file("host_key");
  std::filesystem::create_directory(folder_.file("known_hosts"));
  ssh_config_ = folder_.write("ssh_config", ssh_config_text({.folder = folder_.path(),
                                                             .port = settings.ssh_port,
                                                             .user = current_user()}));
  if (mounted_) {
    // Copied, for ssh refuses a private key that others can read, as mounts often are.
    const std::string text = smp::read_text(settings.ssh_key);
    if (text.empty()) {
      throw smp::ConfigError(
          "SM_LAUNCH_SSH_KEY: {} cannot be read; mount the same private key on "
          "every host, or unset the variable",
          settings.ssh_key.string());
    }
    smp::replace_text(host_file, text, smp::kForOwner);
    folder_.write("job_key", text);
    host_key_ = job_key_ = public_key_of(host_file, settings.inherited);
    for (const std::string& host : runner.hosts) {
      folder_.write("known_hosts/" + host, known_host_line(host, settings.ssh_port, host_key_));
    }
    return;
  }
  host_key_ = make_key(host_file, settings.inherited);
  if (runner.role == Role::kMaster) {
    job_key_ = make_key(folder_.file("job_key"), settings.inherited);
  }
}

void ClusterKeys::authorize(const std::string& job_key, const std::vector<std::string>& addresses) {
  job_key_ = job_key;
  folder_.write("authorized_keys", authorized_key_line(job_key, addresses));
}

std::optional<std::string> parse_public_key(std::string_view line) {
  const std::size_t blank = line.find(' ');
  if (blank == std::string_view::npos) return std::nullopt;
  const std::string_view type = line.substr(0, blank);
  if (std::ranges::find(kTypes, type) == std::end(kTypes)) return std::nullopt;
  std::string_view body = line.substr(blank + 1);
  body = body.substr(0, body.find_first_of(" \r\n"));
  if (body.size() < 16 || body.size() > kLongestKey || !std::ranges::all_of(body, is_base64)) {
    return std::nullopt;
  }
  return std::string(type) + " " + std::string(body);
}

std::string make_key(const std::filesystem::path& private_file,
                     std::span<const std::string> environment) {
  const Completed done =
      keygen({"-q", "-t", "ed25519", "-N", "", "-C", "smp-train", "-f", private_file.string()},
             environment);
  const auto key = parse_public_key(smp::read_text(private_file.string() + ".pub"));
  if (!done.status.ok() || !key) {
    throw smp::HostError(
        "ssh-keygen made no key (exit {}): {}; a job on several hosts needs "
        "openssh-client and a user that /etc/passwd knows",
        done.status.failure_code(), done.output);
  }
  return *key;
}

std::string public_key_of(const std::filesystem::path& private_file,
                          std::span<const std::string> environment) {
  const Completed done = keygen({"-y", "-P", "", "-f", private_file.string()}, environment);
  const auto key = parse_public_key(done.output);
  if (!done.status.ok() || !key) {
    throw smp::ConfigError(
        "{} is not a private key that can be used without a passphrase, with mode 0600: {}",
        private_file.string(), done.output);
  }
  return *key;
}

}  // namespace entrypoint
