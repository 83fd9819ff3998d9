// SPDX-License-Identifier: Apache-2.0
// Judges what was seen of a machine by what the job needs of it. All pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "entrypoint/doctor/finding.h"
#include "entrypoint/doctor/machine_facts.h"

namespace entrypoint {

/// The job's demands on its machine, as far as they are known.
struct MachineNeeds {
  std::string instance_type = "local";
  std::optional<int> processes_per_host;  ///< ranks on this host; nothing: not said
  bool several_hosts = false;
  EfaSwitch efa = EfaSwitch::kAuto;
};

/// torch, driver, gpus, nccl, fabric, memlock, /dev/shm and disk, one finding each at least.
/// `torch` is nothing when there is no Python to ask.
std::vector<Finding> judge_machine(const MachineFacts& facts,
                                   const std::optional<TorchFacts>& torch,
                                   const MachineNeeds& needs);

}  // namespace entrypoint
