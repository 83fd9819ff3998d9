// SPDX-License-Identifier: Apache-2.0
// Which of NCCL's and libfabric's settings a machine needs for AWS's EFA network: decided from its
// instance type, from what is seen on it, and from the user's switch.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace entrypoint {

/// What the instance-type table knows.
struct FabricTraits {
  bool efa = false;          ///< has EFA, used through libfabric by NCCL
  bool device_rdma = false;  ///< EFA reads and writes GPU memory itself
};

/// Traits by exact instance type, e.g. "ml.p4d.24xlarge"; no traits for types not in the table.
FabricTraits traits_of_instance_type(std::string_view instance_type);

/// SM_LAUNCH_EFA.
enum class EfaSwitch { kAuto, kOn, kOff };

/// What was seen on the machine.
struct EfaProbe {
  std::vector<std::string> devices;  ///< EFA devices by kernel name, e.g. "rdmap0s6"
};

struct EfaDecision {
  bool enabled = false;
  bool device_rdma = false;
  std::string reason;   ///< one line for the log
  std::string warning;  ///< not empty when EFA was asked for or expected and is not there
};

/// Pure. Automatic: on when the table or the probe says so. The user's switch overrides both, and
/// a switch or a table that promises what the machine lacks is a warning, never a silent fallback.
EfaDecision decide_efa(std::string_view instance_type, const EfaProbe& probe, EfaSwitch wanted);

/// Looks at /sys/class/infiniband. Never throws: a machine without it has no devices.
EfaProbe probe_efa();

}  // namespace entrypoint
