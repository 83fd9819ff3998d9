// SPDX-License-Identifier: Apache-2.0
// The torchrun line, the same program on every host: native DDP, FSDP and the second generation of
// the model-parallel library.
#pragma once

#include <string>
#include <vector>

#include "entrypoint/plan/entry_point.h"
#include "entrypoint/plan/job_outline.h"

namespace entrypoint {

struct TorchrunInput {
  const JobConfig& job;
  const HostFacts& facts;
  const JobOutline& outline;
  const EntryPoint& entry;
  const std::string& port;  ///< of the rendezvous
  const std::vector<std::string>& arguments;
};

/// Pure. `torchrun --nnodes N --nproc_per_node P` with the rendezvous, on one host its port alone,
/// then script or `-m MODULE`, and arguments. An interpreter of the user's choice
/// (SM_LAUNCH_PYTHON) runs the module instead of the program, which belongs to another one. Throws
/// as check_torchrun().
std::vector<std::string> make_torchrun_command(const TorchrunInput& input);

/// Throws ConfigError for entry points that are no Python scripts or modules, and where torchrun is
/// missing.
void check_torchrun(const JobConfig& job, const HostFacts& facts, const EntryPoint& entry);

}  // namespace entrypoint
