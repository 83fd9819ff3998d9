// SPDX-License-Identifier: Apache-2.0
// Which of NCCL's and libfabric's settings a machine needs for AWS's EFA network: decided from its
// instance type, from what is seen on it, and from the user's switch.
#pragma once

#include <filesystem>
#include <optional>
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
  std::vector<std::string> devices;   ///< EFA devices by kernel name, e.g. "rdmap0s6"
  bool other_devices = false;         ///< some whose driver cannot be told, or another maker's
  std::optional<bool> provider;       ///< `fi_info -p efa` lists one; none: it was not asked
  bool has_gpus = false;              ///< so NCCL is what will use EFA
  std::filesystem::path nccl_plugin;  ///< what connects NCCL to libfabric; empty: not found

  /// EFA can be used here, whatever the table says.
  [[nodiscard]] bool sees_efa() const { return !devices.empty() || provider.value_or(false); }
};

struct EfaDecision {
  bool enabled = false;
  bool device_rdma = false;
  std::string reason;                 ///< one line for the log
  std::vector<std::string> warnings;  ///< EFA was asked for or expected and will not be used
};

/// Pure. `instance_types`: this host's first, then those of other hosts that take part. Automatic:
/// on when the table or the probe says so; hosts of several types go by the table alone, so that
/// all of them decide alike, and need EFA all. The user's switch overrides both. A switch or a
/// table that promises what the machine lacks is a warning, never a silent fallback.
EfaDecision decide_efa(const std::vector<std::string>& instance_types, const EfaProbe& probe,
                       EfaSwitch wanted);

/// Looks at /sys/class/infiniband (`devices`), starts nothing. Never throws: a machine without it
/// has no devices. `provider`, `has_gpus` and `nccl_plugin` are left to the caller.
EfaProbe probe_efa(const std::filesystem::path& devices = "/sys/class/infiniband");

/// Whether `fi_info` is worth its start: something promises EFA and nothing has shown it yet.
bool should_ask_libfabric(const EfaProbe& probe, const std::vector<std::string>& instance_types,
                          EfaSwitch wanted);

/// Whether the output of `fi_info -p efa` lists EFA. Pure.
bool lists_efa(std::string_view fi_info_output);

/// libnccl-net*.so in the folders of LD_LIBRARY_PATH or where AWS's installer puts it; empty: none.
std::filesystem::path find_nccl_plugin(std::string_view library_path);

}  // namespace entrypoint
