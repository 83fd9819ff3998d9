// SPDX-License-Identifier: Apache-2.0
// Address of the key-value store by which the ranks of a job find each other.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "smp_runtime/cluster/launch_ranks.h"
#include "smp_runtime/core/variables.h"

namespace smp::cluster {

struct Rendezvous {
  std::string host;      ///< empty: rank 0 tells its own over MPI
  int port = 0;          ///< 0: rank 0 picks one, and tells it over MPI
  bool foreign = false;  ///< somebody else serves it: torchrun's agent
  std::string prefix;    ///< of the keys: that agent's store outlives ranks, which start again

  bool operator==(const Rendezvous&) const = default;
};

/// Everything but the ranks that a rendezvous depends on.
struct RendezvousRequest {
  const Variables& variables;      ///< of the environment
  std::vector<std::string> hosts;  ///< of the job, the first one's first; may be empty
  std::optional<int> port;         ///< that the job's settings ask for
  bool have_mpi = false;           ///< rank 0 can tell the others
  int number = 0;                  ///< how many sessions this process had before
};

/// MASTER_ADDR and MASTER_PORT count, `port` before the latter. Without an address: loopback when
/// all ranks are on this host, else what rank 0 tells over MPI, else the first of the hosts, else
/// the first node of Slurm's step. Without a port: one that rank 0 picks, told over MPI; else
/// derived_port(). Throws ConfigError where nothing says where rank 0 is. Pure.
Rendezvous plan_rendezvous(const LaunchRanks& ranks, const RendezvousRequest& request);

/// True if the variables alone give the host of rank 0, so that MPI need not be asked.
bool is_told(const RendezvousRequest& request);

}  // namespace smp::cluster
