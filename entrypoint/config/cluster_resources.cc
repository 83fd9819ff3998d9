// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/config/cluster_resources.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <unistd.h>

#include "entrypoint/config/launch_options.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/file.h"

namespace entrypoint {
namespace {

namespace fs = std::filesystem;

/// Throws ConfigError where `train` was started as a part of the job that can do nothing.
void check_start(const ClusterJob& cluster) {
  if (cluster.cluster == Cluster::kSlurm && !cluster.host_number) {
    throw smp::ConfigError(
        "{}: this shell is on none of its nodes; start `train` there: srun --ntasks-per-node=1 "
        "train",
        cluster.name);
  }
  if (!cluster.whole) {
    throw smp::ConfigError(
        "{} has {} nodes, and this is its batch script, which runs on one; start `train` on all of "
        "them: srun --ntasks-per-node=1 train",
        cluster.name, cluster.host_count);
  }
  if (cluster.cluster == Cluster::kSlurm && cluster.tasks_per_host().value_or(1) > 1) {
    throw smp::ConfigError(
        "{}: the step has up to {} tasks a node, and `train` is one a node that starts the node's "
        "processes; use srun --ntasks-per-node=1 train, or srun python with one task a rank",
        cluster.name, *cluster.tasks_per_host());
  }
}

}  // namespace

std::optional<ClusterJob> find_cluster(const smp::Variables& environment) {
  const std::string path = smp::cluster::hostfile_path(environment);
  std::optional<std::string> hostfile;
  if (access(path.c_str(), R_OK) == 0) hostfile = smp::read_text(path);
  return smp::cluster::read_cluster(environment, hostfile);
}

std::optional<ClusterJob> cluster_to_ask(const opt_ml::Layout& layout,
                                         const smp::Variables& environment) {
  std::error_code ignored;
  if (fs::exists(layout.resource_config(), ignored)) return std::nullopt;
  if (!read_options(environment).cluster) return std::nullopt;
  auto cluster = find_cluster(environment);
  return cluster && cluster->hosts.empty() ? std::move(cluster) : std::nullopt;
}

opt_ml::ResourceConfig make_resources(const ClusterJob& cluster, const std::string& own_name) {
  check_start(cluster);
  return opt_ml::as_one_group(
      {.current_host = cluster.host_number ? cluster.hosts[*cluster.host_number] : own_name,
       .hosts = cluster.hosts});
}

void check_agreement(const ClusterJob& cluster, const opt_ml::ResourceConfig& resources,
                     const fs::path& file) {
  if (static_cast<int>(resources.hosts.size()) == cluster.host_count) return;
  throw smp::ConfigError(
      "{} names {} hosts, and {} has {} ({}); remove the file, so that the cluster says the hosts, "
      "or set SM_LAUNCH_CLUSTER=off, so that the file does",
      file.string(), resources.hosts.size(), cluster.name, cluster.host_count, cluster.reason);
}

fs::path find_mounted_key(const std::string& named, const smp::Variables& environment) {
  const fs::path folder = fs::path(smp::value_or(environment, "HOME", "/root")) / ".ssh";
  fs::path key = named;
  std::error_code ignored;
  for (const char* name : {"id_rsa", "id_ecdsa", "id_ed25519"}) {
    if (key.empty() && fs::exists(folder / name, ignored)) key = folder / name;
  }
  if (key.empty()) {
    throw smp::ConfigError(
        "{}: there is no key pair for user id {}; mount the job's there (sshAuthMountPath), for "
        "the user that the container runs as, or name it by SM_LAUNCH_SSH_KEY",
        folder.string(), geteuid());
  }
  if (access(key.c_str(), R_OK) != 0) {
    throw smp::ConfigError(
        "{}: user id {} cannot read the job's key: {}; mount it for that user, with mode 0600, or "
        "0640 for its group",
        key.string(), geteuid(), std::strerror(errno));
  }
  return key;
}

}  // namespace entrypoint
