// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/fabric/efa.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace entrypoint {
namespace {

struct InstanceType {
  std::string_view name;
  FabricTraits traits;
};

constexpr FabricTraits kEfa{.efa = true};
constexpr FabricTraits kEfaWithRdma{.efa = true, .device_rdma = true};

// The first ten are the reference launcher's lists; the types below them came later, and it leaves
// their network unused.
constexpr InstanceType kInstanceTypes[] = {
    {"ml.g4dn.8xlarge", kEfa},
    {"ml.g4dn.12xlarge", kEfa},
    {"ml.g5.48xlarge", kEfa},
    {"ml.p3dn.24xlarge", kEfa},
    {"ml.p4d.24xlarge", kEfaWithRdma},
    {"ml.p4de.24xlarge", kEfaWithRdma},
    {"ml.p5.48xlarge", kEfaWithRdma},
    {"ml.p5e.48xlarge", kEfaWithRdma},
    {"ml.trn1.32xlarge", kEfaWithRdma},
    {"ml.p6e-gb200.36xlarge", kEfaWithRdma},

    {"ml.p5en.48xlarge", kEfaWithRdma},
    {"ml.p6-b200.48xlarge", kEfaWithRdma},
    {"ml.trn1n.32xlarge", kEfaWithRdma},
    {"ml.trn2.48xlarge", kEfaWithRdma},
};

}  // namespace

FabricTraits traits_of_instance_type(std::string_view instance_type) {
  const auto* const row = std::ranges::find(kInstanceTypes, instance_type, &InstanceType::name);
  return row == std::end(kInstanceTypes) ? FabricTraits{} : row->traits;
}

EfaDecision decide_efa(std::string_view instance_type, const EfaProbe& probe, EfaSwitch wanted) {
  if (wanted == EfaSwitch::kOff) return {.reason = "EFA is off: SM_LAUNCH_EFA=off"};

  const FabricTraits traits = traits_of_instance_type(instance_type);
  const bool seen = !probe.devices.empty();
  EfaDecision decision{.enabled = wanted == EfaSwitch::kOn || traits.efa || seen,
                       .device_rdma = traits.device_rdma};
  if (!decision.enabled) {
    decision.reason =
        fmt::format("EFA is off: {} has none and no EFA device is seen", instance_type);
    return decision;
  }
  decision.reason = seen
                        ? fmt::format("EFA is on: devices {}", fmt::join(probe.devices, ", "))
                        : fmt::format("EFA is on: {}", wanted == EfaSwitch::kOn ? "SM_LAUNCH_EFA=on"
                                                                                : instance_type);
  if (!seen) {
    decision.warning = fmt::format(
        "{}, but this container sees no EFA device: NCCL will use TCP or fail; pass the devices "
        "/dev/infiniband/* into the container, or set SM_LAUNCH_EFA=off",
        decision.reason);
  }
  return decision;
}

EfaProbe probe_efa() {
  EfaProbe probe;
  std::error_code error;
  const std::filesystem::path devices = "/sys/class/infiniband";
  for (std::filesystem::directory_iterator entry(devices, error), end; !error && entry != end;
       entry.increment(error)) {
    // Other makers' adapters are listed here, too; EFA's are driven by the module "efa".
    const auto driver =
        std::filesystem::read_symlink(entry->path() / "device" / "driver", error).filename();
    if (!error && driver == "efa") probe.devices.push_back(entry->path().filename().string());
    error.clear();
  }
  std::ranges::sort(probe.devices);
  return probe;
}

}  // namespace entrypoint
