// SPDX-License-Identifier: Apache-2.0
// Settings of NCCL and libfabric that a machine needs for AWS's EFA network: decided from its
// instance type, from the signs of EFA on it, and from the user's switch.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace entrypoint {

/// A row of the table of instance types.
struct FabricTraits {
  bool efa = false;          ///< has EFA, used through libfabric by NCCL
  bool device_rdma = false;  ///< EFA reads and writes GPU memory itself
};

/// Traits by exact instance type, e.g. "ml.p4d.24xlarge"; no traits for types not in the table.
FabricTraits traits_of_instance_type(std::string_view instance_type);

/// SM_LAUNCH_EFA.
enum class EfaSwitch { kAuto, kOn, kOff };

/// Signs of EFA on the machine.
struct EfaProbe {
  std::vector<std::string> devices;        ///< EFA devices by kernel name, e.g. "rdmap0s6"
  std::vector<std::string> other_devices;  ///< another maker's, or the driver cannot be told
  std::optional<bool> provider;            ///< `fi_info -p efa` lists one; none: it was not asked
  std::vector<std::string> providers;      ///< what `fi_info` lists where that is not EFA
  bool has_gpus = false;                   ///< so NCCL is what will use EFA
  std::string nccl_plugin;                 ///< what connects NCCL to libfabric; empty: not found

  /// EFA can be used here, whatever the table says.
  [[nodiscard]] bool sees_efa() const { return !devices.empty() || provider.value_or(false); }
};

/// The part of EFA that is lost.
enum class EfaLoss {
  kNccl,    ///< it works, but NCCL goes without
  kAll,     ///< nothing can use it here, though it was expected
  kRefused  ///< the same, though it was asked for: the job must not start
};

struct EfaProblem {
  EfaLoss loss;
  std::string finding;  ///< what is there, and what happens now
  std::string remedy;

  [[nodiscard]] std::string text() const { return finding + "; " + remedy; }
};

struct EfaDecision {
  bool enabled = false;
  bool device_rdma = false;
  std::string nccl_plugin;  ///< value of NCCL_NET_PLUGIN; empty: nothing to connect, or nothing to
  std::string reason;       ///< one line for the log
  std::optional<EfaProblem> problem;  ///< EFA was asked for or expected and will not be used
};

/// Pure. `instance_types`: this host's first, then those of other hosts that take part. Automatic:
/// on when the table or the probe says so; hosts of several types go by the table alone, so that
/// all of them decide alike, and need EFA all. The user's switch overrides both. What the table
/// promises and the machine lacks is a problem to warn of, what the switch asks for is one to fail
/// with: nothing falls back in silence.
EfaDecision decide_efa(const std::vector<std::string>& instance_types, const EfaProbe& probe,
                       EfaSwitch wanted);

/// Looks at /sys/class/infiniband (`devices`), starts nothing. Never throws: a machine without it
/// has no devices. `provider`, `has_gpus` and `nccl_plugin` are left to the caller.
EfaProbe probe_efa(const std::filesystem::path& devices = "/sys/class/infiniband");

/// True if `fi_info` is worth its start: something promises EFA and nothing has shown it yet.
bool should_ask_libfabric(const EfaProbe& probe, const std::vector<std::string>& instance_types,
                          EfaSwitch wanted);

/// The providers that an output of `fi_info` lists, each once, in its order, without the layers
/// above them: "efa" for "efa;ofi_rxd". Pure.
std::vector<std::string> listed_providers(std::string_view fi_info_output);

/// NCCL's plugin, absolute: libnccl-net*.so in the folders of LD_LIBRARY_PATH or where AWS's
/// installer puts it. Of several in a folder AWS's own name counts most, then the one that NCCL
/// knows. Empty: none.
std::filesystem::path find_nccl_plugin(std::string_view library_path);

}  // namespace entrypoint
