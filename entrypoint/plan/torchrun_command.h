// SPDX-License-Identifier: Apache-2.0
// The torchrun line, the same program on every host: native DDP, FSDP and the second generation of
// the model-parallel library.
#pragma once

#include <string>
#include <vector>

#include "entrypoint/config/job_config.h"
#include "entrypoint/plan/entry_point.h"
#include "entrypoint/plan/host_facts.h"
#include "entrypoint/plan/launch_plan.h"

namespace entrypoint {

struct TorchrunInput {
  const JobConfig& job;
  const HostFacts& facts;
  const EntryPoint& entry;
  std::vector<std::string> hosts;  ///< in rank order; holds the current one
  int processes_per_host = 1;
  std::string master_address;  ///< MASTER_ADDR as the script sees it
  std::string master_port;
  std::vector<std::string> arguments;
};

/// Pure. `torchrun --nnodes N --nproc_per_node P` with the rendezvous, on one host its port alone,
/// then script or `-m MODULE`, and arguments. An interpreter of the user's choice
/// (SM_LAUNCH_PYTHON) runs the module instead of the program, which belongs to another one. Throws
/// ConfigError for entry points that are no Python scripts or modules, and where torchrun is
/// missing.
std::vector<std::string> make_torchrun_command(const TorchrunInput& input);

}  // namespace entrypoint
