// SPDX-License-Identifier: Apache-2.0
// Findings of `train --doctor`: what was seen of a machine, judged by what the job needs of it, and
// their texts. All pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "entrypoint/doctor/machine_facts.h"

namespace entrypoint {

enum class Health { kGood, kWarning, kBad };

struct Finding {
  std::string subject;  ///< one or two words: "driver", "host algo-2"
  Health health = Health::kGood;
  std::string finding;  ///< one line
  std::string remedy;   ///< what to do; empty when all is well

  bool operator==(const Finding&) const = default;
};

/// One line for each finding, its remedy below it. Ends in a newline.
std::string findings_text(const std::vector<Finding>& findings);

/// {"healthy": …, "findings": [{"subject", "health", "finding", "remedy"}]}, health being ok,
/// warning or bad; indented, ends in a newline.
std::string findings_json(const std::vector<Finding>& findings);

/// 1 when something is bad, else 0: what a probe of Kubernetes wants.
int findings_exit_code(const std::vector<Finding>& findings);

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
