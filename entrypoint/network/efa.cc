// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/network/efa.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "smp_runtime/core/text.h"

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

/// Traits that all types share.
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

std::string listed(const std::vector<std::string>& names) {
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

std::string libfabric_offers(const EfaProbe& probe) {
  return probe.provider ? "libfabric offers: " + listed(probe.providers)
                        : "fi_info is not here or gave no answer";
}

/// The obstacle to EFA where it is on, for the reason that `on` tells.
std::optional<EfaProblem> find_problem(const std::string& on, const EfaProbe& probe, bool asked) {
  constexpr const char* kNoDevice = "this container sees no EFA device";
  constexpr const char* kPassDevices =
      "pass the devices /dev/infiniband/* into the container, or set SM_LAUNCH_EFA=off";
  constexpr const char* kTakeImage =
      "use an image with AWS's libfabric (docker/efa/README.md), or set SM_LAUNCH_EFA=off";
  constexpr const char* kTakePlugin =
      "use an image with AWS's OFI plugin (docker/efa/README.md), "
      "name one by NCCL_NET_PLUGIN, or set SM_LAUNCH_EFA=off";
  if (!probe.sees_efa()) {
    if (asked) {
      return EfaProblem{
          EfaLoss::kRefused,
          fmt::format("SM_LAUNCH_EFA=on, but {}; /sys/class/infiniband holds: {}; {}", kNoDevice,
                      listed(probe.other_devices), libfabric_offers(probe)),
          kPassDevices};
    }
    return EfaProblem{EfaLoss::kAll,
                      fmt::format("{}, but {}: NCCL will use TCP or fail", on, kNoDevice),
                      kPassDevices};
  }
  if (probe.provider == false) {
    constexpr const char* kNoProvider =
        "the libfabric of this image has no provider for it (fi_info -p efa)";
    if (asked) {
      return EfaProblem{EfaLoss::kRefused,
                        fmt::format("SM_LAUNCH_EFA=on and the devices {} are there, but {}; {}",
                                    listed(probe.devices), kNoProvider, libfabric_offers(probe)),
                        kTakeImage};
    }
    return EfaProblem{EfaLoss::kAll,
                      fmt::format("{}, but {}: NCCL will use TCP or fail", on, kNoProvider),
                      kTakeImage};
  }
  if (probe.has_gpus && probe.nccl_plugin.empty()) {
    return EfaProblem{
        EfaLoss::kNccl,
        fmt::format("{}, but what connects NCCL to it (libnccl-net*.so) is neither on "
                    "LD_LIBRARY_PATH nor in /opt/amazon/ofi-nccl: NCCL will use sockets, over TCP",
                    on),
        kTakePlugin};
  }
  return std::nullopt;
}

/// The plugin of a folder.
fs::path plugin_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code dangling;
    if (name.starts_with("libnccl-net") && name.find(".so") != std::string::npos &&
        fs::exists(entry->path(), dangling)) {
      names.push_back(name);
    }
  }
  if (names.empty()) return {};
  for (const char* known : {"libnccl-net-ofi.so", "libnccl-net.so"}) {
    if (std::ranges::find(names, known) != names.end()) return folder / known;
  }
  return folder / *std::ranges::min_element(names);
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
      decision.problem = EfaProblem{
          EfaLoss::kAll, fmt::format("{}, so {} does not use its own", decision.reason, own_type),
          "SM_LAUNCH_EFA=on on all hosts forces it"};
    }
    return decision;
  }
  decision.reason = "EFA is on: " + why_on(own_type, probe, wanted);
  decision.problem = find_problem(decision.reason, probe, wanted == EfaSwitch::kOn);
  // Without a device, plugins have broken NCCL instead of leaving it to TCP.
  if (seen && !probe.nccl_plugin.empty()) {
    decision.nccl_plugin = probe.nccl_plugin;
    decision.reason += "; NCCL's plugin: " + probe.nccl_plugin;
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
      probe.other_devices.push_back(entry->path().filename().string());
    }
  }
  std::ranges::sort(probe.devices);
  std::ranges::sort(probe.other_devices);
  return probe;
}

bool should_ask_libfabric(const EfaProbe& probe, const std::vector<std::string>& instance_types,
                          EfaSwitch wanted) {
  if (wanted == EfaSwitch::kOff) return false;
  return wanted == EfaSwitch::kOn || probe.sees_efa() || !probe.other_devices.empty() ||
         common_traits(instance_types).efa;
}

std::vector<std::string> listed_providers(std::string_view fi_info_output) {
  constexpr std::string_view kStart = "provider: ";
  std::vector<std::string> providers;
  for (const std::string& line : smp::split(fi_info_output, '\n')) {
    if (!line.starts_with(kStart)) continue;
    std::string name = line.substr(kStart.size(), line.find(';') - kStart.size());
    if (std::ranges::find(providers, name) == providers.end()) providers.push_back(std::move(name));
  }
  return providers;
}

fs::path find_nccl_plugin(std::string_view library_path) {
  std::vector<std::string> folders = smp::split(library_path, ':');
  std::erase(folders, "");
  for (const char* folder : {"/opt/amazon/ofi-nccl/lib64", "/opt/amazon/ofi-nccl/lib",
                             "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu",
                             "/opt/amazon/ofi-nccl/lib/aarch64-linux-gnu"}) {
    folders.emplace_back(folder);
  }
  for (const std::string& folder : folders) {
    std::error_code error;
    const fs::path plugin = plugin_in(fs::absolute(folder, error));
    if (!plugin.empty()) return plugin;
  }
  return {};
}

}  // namespace entrypoint
