// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/dataparallel/knobs.h"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "smp_runtime/core/error.h"

namespace smp::dataparallel {
namespace {

size_t bytes_knob(const char* variable, size_t otherwise) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return otherwise;
  constexpr size_t kMost = size_t{1} << 30;
  const std::string_view view(text);
  size_t value = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc() || end != view.data() + view.size() || value == 0 || value > kMost) {
    throw ConfigError("{} is \"{}\"; expected a number of bytes from 1 to {}", variable, view,
                      kMost);
  }
  return value;
}

std::string text_knob(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

std::optional<collectives::GpuRoute> route_knob(const char* variable) {
  const std::string text = text_knob(variable);
  if (text.empty() || text == "auto") return std::nullopt;
  for (const auto route : {collectives::GpuRoute::kHost, collectives::GpuRoute::kNcclInside,
                           collectives::GpuRoute::kNccl}) {
    if (text == collectives::name(route)) return route;
  }
  throw ConfigError("{} is \"{}\"; expected auto, host, nccl-inside or nccl", variable, text);
}

/// Who judges a level is the launcher; what is no number is as if it were not there.
log::Level level_knob(const char* variable) {
  const int level = std::atoi(text_knob(variable).c_str());
  return level > 0 ? static_cast<log::Level>(level) : log::Level::kInfo;
}

/// What FI_PROVIDER chooses. It may also exclude ("^udp") or list several: that libfabric does.
std::string provider_of(const std::string& filter) {
  return filter.find_first_of("^,") == std::string::npos ? filter : "";
}

}  // namespace

Knobs knobs_from_environment() {
  const collectives::Tuning defaults;
  std::string provider = text_knob("SMDDP_FABRIC_PROVIDER");
  if (provider.empty()) provider = provider_of(text_knob("FI_PROVIDER"));
  const std::string plugin = text_knob("NCCL_NET_PLUGIN");
  return {
      .tuning = {.slot_bytes = bytes_knob("SMDDP_SLOT_BYTES", defaults.slot_bytes),
                 .wire_slot_bytes = bytes_knob("SMDDP_WIRE_SLOT_BYTES", defaults.wire_slot_bytes),
                 .small_bytes = bytes_knob("SMDDP_SMALL_BYTES", defaults.small_bytes)},
      .network = {.fabric = {.provider = std::move(provider)},
                  .interface = text_knob("SMDDP_INTERFACE"),
                  .master = text_knob("MASTER_ADDR")},
      .gpu_route = route_knob("SMDDP_GPU_ROUTE"),
      .nccl_has_plugin = !plugin.empty() && plugin != "none",
      .log_level = level_knob("SM_LOG_LEVEL")};
}

}  // namespace smp::dataparallel
