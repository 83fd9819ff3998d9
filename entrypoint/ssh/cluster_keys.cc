// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/ssh/cluster_keys.h"

#include "entrypoint/ssh/ssh_client.h"
#include "entrypoint/ssh/ssh_keys.h"
#include "entrypoint/ssh/sshd.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/file.h"

namespace entrypoint {

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

}  // namespace entrypoint
