// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/fabric/efa.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace entrypoint {
namespace {

namespace fs = std::filesystem;

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

/// What all of them have.
FabricTraits common_traits(const std::vector<std::string>& instance_types) {
  FabricTraits common{.efa = true, .device_rdma = true};
  for (const std::string& type : instance_types) {
    const FabricTraits traits = traits_of_instance_type(type);
    common.efa &= traits.efa;
    common.device_rdma &= traits.device_rdma;
  }
  return common;
}

std::string why_on(const std::string& own_type, const EfaProbe& probe, EfaSwitch wanted) {
  if (!probe.devices.empty()) return fmt::format("devices {}", fmt::join(probe.devices, ", "));
  if (probe.sees_efa()) return "libfabric lists it";
  return wanted == EfaSwitch::kOn ? "SM_LAUNCH_EFA=on" : own_type;
}

}  // namespace

FabricTraits traits_of_instance_type(std::string_view instance_type) {
  const auto* const row = std::ranges::find(kInstanceTypes, instance_type, &InstanceType::name);
  return row == std::end(kInstanceTypes) ? FabricTraits{} : row->traits;
}

EfaDecision decide_efa(const std::vector<std::string>& instance_types, const EfaProbe& probe,
                       EfaSwitch wanted) {
  if (wanted == EfaSwitch::kOff) return {.reason = "EFA is off: SM_LAUNCH_EFA=off"};

  const std::string& own_type = instance_types.front();
  const FabricTraits traits = common_traits(instance_types);
  const bool one_type = instance_types.size() == 1;
  const bool seen = probe.sees_efa();
  EfaDecision decision{.enabled = wanted == EfaSwitch::kOn || traits.efa || (seen && one_type),
                       .device_rdma = traits.device_rdma};
  if (!decision.enabled) {
    decision.reason =
        one_type ? fmt::format("EFA is off: {} has none and no EFA device is seen", own_type)
                 : fmt::format("EFA is off: not all of {} are known to have it",
                               fmt::join(instance_types, ", "));
    if (!one_type && (seen || traits_of_instance_type(own_type).efa)) {
      decision.warnings.push_back(
          fmt::format("{}, so {} does not use its own; SM_LAUNCH_EFA=on on all hosts forces it",
                      decision.reason, own_type));
    }
    return decision;
  }
  decision.reason = "EFA is on: " + why_on(own_type, probe, wanted);
  if (!seen) {
    decision.warnings.push_back(fmt::format(
        "{}, but this container sees no EFA device: NCCL will use TCP or fail; pass the devices "
        "/dev/infiniband/* into the container, or set SM_LAUNCH_EFA=off",
        decision.reason));
  } else if (probe.provider == false) {
    decision.warnings.push_back(fmt::format(
        "{}, but the libfabric of this image has no provider for it (fi_info -p efa): NCCL will "
        "use TCP or fail; use an image with AWS's libfabric, or set SM_LAUNCH_EFA=off",
        decision.reason));
  } else if (probe.has_gpus && probe.nccl_plugin.empty()) {
    decision.warnings.push_back(fmt::format(
        "{}, but no libnccl-net*.so is on LD_LIBRARY_PATH, which connects NCCL to it: NCCL will "
        "use TCP; use an image with AWS's OFI plugin, or set SM_LAUNCH_EFA=off",
        decision.reason));
  }
  return decision;
}

EfaProbe probe_efa(const fs::path& devices) {
  EfaProbe probe;
  std::error_code error;
  for (fs::directory_iterator entry(devices, error), end; !error && entry != end;
       entry.increment(error)) {
    // Other makers' adapters are listed here, too; EFA's are driven by the module "efa".
    std::error_code unreadable;
    const fs::path driver =
        fs::read_symlink(entry->path() / "device" / "driver", unreadable).filename();
    if (!unreadable && driver == "efa") {
      probe.devices.push_back(entry->path().filename().string());
    } else {
      probe.other_devices = true;
    }
  }
  std::ranges::sort(probe.devices);
  return probe;
}

bool should_ask_libfabric(const EfaProbe& probe, const std::vector<std::string>& instance_types,
                          EfaSwitch wanted) {
  if (wanted == EfaSwitch::kOff) return false;
  return wanted == EfaSwitch::kOn || probe.sees_efa() || probe.other_devices ||
         common_traits(instance_types).efa;
}

bool lists_efa(std::string_view fi_info_output) {
  // "provider: efa"; layered providers are named "efa;ofi_rxd".
  return fi_info_output.find("provider: efa") != std::string_view::npos;
}

fs::path find_nccl_plugin(std::string_view library_path) {
  std::vector<std::string> folders;
  while (!library_path.empty()) {
    const std::string_view folder = library_path.substr(0, library_path.find(':'));
    if (!folder.empty()) folders.emplace_back(folder);
    library_path.remove_prefix(std::min(folder.size() + 1, library_path.size()));
  }
  for (const char* folder : {"/opt/amazon/ofi-nccl/lib64", "/opt/amazon/ofi-nccl/lib",
                             "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu"}) {
    folders.emplace_back(folder);
  }
  for (const std::string& folder : folders) {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      if (name.starts_with("libnccl-net") && name.find(".so") != std::string::npos) {
        return entry->path();
      }
    }
  }
  return {};
}

}  // namespace entrypoint
