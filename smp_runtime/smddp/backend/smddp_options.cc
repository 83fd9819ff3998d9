// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/backend/smddp_options.h"

#include <cstdint>

#include <fmt/format.h>

namespace smp::smddp {
namespace {

std::size_t bytes_of(const VariableSet& set, std::string_view name) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  return static_cast<std::size_t>(
      set.whole(name, 1, kMost, fmt::format("a number of bytes from 1 to {}", kMost)));
}

std::optional<collectives::GpuRoute> route_of(const VariableSet& set, std::string_view name) {
  using enum collectives::GpuRoute;
  const std::string text = set.choice(
      name,
      {"auto", collectives::name(kCpu), collectives::name(kNcclInside), collectives::name(kNccl)});
  for (const auto route : {kCpu, kNcclInside, kNccl}) {
    if (text == collectives::name(route)) return route;
  }
  return std::nullopt;
}

}  // namespace

SmddpOptions make_options(const Variables& variables) {
  const VariableSet set(kOptions, variables);
  const std::string plugin = set.text("NCCL_NET_PLUGIN");
  return {.tuning = {.buffer_bytes = bytes_of(set, "SMDDP_SLOT_BYTES"),
                     .network_buffer_bytes = bytes_of(set, "SMDDP_WIRE_SLOT_BYTES"),
                     .small_bytes = bytes_of(set, "SMDDP_SMALL_BYTES")},
          .network = transport::make_network(
              [&](std::string_view variable) { return set.text(variable); }),
          .gpu_route = route_of(set, "SMDDP_GPU_ROUTE"),
          .nccl_has_plugin = !plugin.empty() && plugin != "none",
          .record_folder = set.text("SMP_RECORDS"),
          .log_level = set.level("SM_LOG_LEVEL")};
}

log::Level log_level(const Variables& variables) {
  try {
    return VariableSet(kOptions, variables).level("SM_LOG_LEVEL");
  } catch (const ConfigError&) {
    return SmddpOptions().log_level;
  }
}

std::vector<std::string> describe_unknown_options(const Variables& variables) {
  return VariableSet(kOptions, variables).unknown("SMDDP_");
}

}  // namespace smp::smddp
