// SPDX-License-Identifier: Apache-2.0
// The network between the hosts of a job: interface, master's address, EFA.
#pragma once

#include <string>
#include <vector>

#include "entrypoint/config/job_config.h"
#include "entrypoint/network/efa.h"
#include "entrypoint/plan/host_facts.h"
#include "entrypoint/plan/runner_choice.h"

namespace entrypoint {

struct JobNetwork {
  std::string interface_name;        ///< empty on one host: none is named
  std::string gloo_interface;        ///< the loopback where no interface is named; may be empty
  std::string master_address;        ///< name or address of the master host
  std::vector<std::string> listens;  ///< servers of the job on this host, with their addresses
  EfaDecision efa;  ///< off for plain processes, unless SM_LAUNCH_EFA=on asks for it
  std::vector<std::string> notes;
  std::vector<std::string> warnings;
};

/// Pure. Throws ConfigError when several hosts leave no interface to pick, when EFA is asked for
/// where it cannot be used, for host names that mpirun refuses, and where SM_LAUNCH_AUTH=require
/// asks hosts to prove themselves that have nothing to do it by.
JobNetwork choose_network(const JobConfig& job, const HostFacts& facts, const RunnerChoice& choice);

/// The type of this host, and of the other groups that take part. SMDDP goes by what the SDK sent.
/// Never empty.
std::vector<std::string> fabric_instance_types(const JobConfig& job, Runner runner);

}  // namespace entrypoint
