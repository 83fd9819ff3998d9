// SPDX-License-Identifier: Apache-2.0
// The mpirun line of the master host.
#pragma once

#include <string>
#include <vector>

#include "entrypoint/config/job_config.h"
#include "entrypoint/fabric/efa.h"
#include "entrypoint/plan/host_facts.h"
#include "entrypoint/plan/launch_plan.h"
#include "entrypoint/plan/mpi_options.h"

namespace entrypoint {

struct MpiCommandInput {
  const JobConfig& job;
  const HostFacts& facts;
  const CustomMpiOptions& custom;
  const EfaDecision& efa;
  std::vector<std::string> hosts;
  int processes_per_host = 1;
  int total_processes = 1;
  std::string interface_name;        ///< empty: none is named
  std::vector<Variable> table;       ///< exported by name, in this order
  std::vector<Variable> others;      ///< likewise
  std::vector<std::string> command;  ///< of one rank
};

struct MpiCommand {
  std::vector<std::string> argv;
  std::vector<std::string> notes;
};

/// Pure. Options in the reference launcher's order, each key once, the user's custom ones winning;
/// variables that tell hosts apart are not exported; secrets go by name only.
MpiCommand make_mpi_command(const MpiCommandInput& input);

}  // namespace entrypoint
