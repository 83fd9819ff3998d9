// SPDX-License-Identifier: Apache-2.0
// Hosts of a job that a cluster's engine started: in place of resourceconfig.json, or beside it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "opt_ml_layout/resource_config.h"
#include "smp_runtime/cluster/cluster_job.h"
#include "smp_runtime/core/variables.h"

namespace entrypoint {

using smp::cluster::Cluster;
using smp::cluster::ClusterJob;

/// read_cluster() of these variables and the hostfile that they name. Throws as it does.
std::optional<ClusterJob> find_cluster(const smp::Variables& environment);

/// The cluster whose nodes have to be asked for the job's hosts: its engine tells each the main
/// one's alone, and the tree names none. Throws ConfigError.
std::optional<ClusterJob> cluster_to_ask(const opt_ml::Layout& layout,
                                         const smp::Variables& environment);

/// The hosts as resourceconfig.json would name them. `own_name` is this machine's, for a launcher
/// outside of the hosts. Throws ConfigError, in one sentence, where `train` cannot run as it was
/// started: in the batch script of several nodes, as one of several tasks of a node, or on no node.
/// Pure.
opt_ml::ResourceConfig make_resources(const ClusterJob& cluster, const std::string& own_name);

/// Throws ConfigError unless a tree that has `resources` may run there: as many hosts. Pure.
void check_agreement(const ClusterJob& cluster, const opt_ml::ResourceConfig& resources,
                     const std::filesystem::path& file);

/// The private key that is mounted where a launcher of MPI looks for it: the file SM_LAUNCH_SSH_KEY
/// names, else the usual names in ~/.ssh. Throws ConfigError that names folder, user and reason
/// where there is none or it cannot be read.
std::filesystem::path find_mounted_key(const std::string& named, const smp::Variables& environment);

}  // namespace entrypoint
