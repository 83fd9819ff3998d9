// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/dataparallel/smddp_options.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <unistd.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/near_names.h"

namespace smp::dataparallel {
namespace {

std::string text_of(const Variables& variables, std::string_view variable) {
  const auto entry = variables.find(variable);
  if (entry != variables.end() && !entry->second.empty()) return entry->second;
  const auto row = std::ranges::find(kOptions, variable, &OptionRow::variable);
  return row == kOptions.end() ? "" : std::string(row->standard);
}

size_t bytes_of(const Variables& variables, std::string_view variable) {
  constexpr size_t kMost = size_t{1} << 30;
  const std::string text = text_of(variables, variable);
  size_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || value == 0 || value > kMost) {
    throw ConfigError("{} is \"{}\"; expected a number of bytes from 1 to {}", variable, text,
                      kMost);
  }
  return value;
}

std::optional<collectives::GpuRoute> route_of(const Variables& variables,
                                              std::string_view variable) {
  const std::string text = text_of(variables, variable);
  if (text == "auto") return std::nullopt;
  for (const auto route : {collectives::GpuRoute::kHost, collectives::GpuRoute::kNcclInside,
                           collectives::GpuRoute::kNccl}) {
    if (text == collectives::name(route)) return route;
  }
  throw ConfigError("{} is \"{}\"; expected auto, host, nccl-inside or nccl", variable, text);
}

log::Level level_of(const Variables& variables, std::string_view variable) {
  const std::string text = text_of(variables, variable);
  const auto level = log::parse_level(text);
  if (!level) {
    throw ConfigError("{} is \"{}\"; expected a number, or DEBUG, INFO, WARNING or ERROR", variable,
                      text);
  }
  return *level;
}

}  // namespace

Variables read_variables() {
  Variables variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t mark = text.find('=');
    if (mark != std::string_view::npos) {
      variables.emplace(text.substr(0, mark), text.substr(mark + 1));
    }
  }
  return variables;
}

SmddpOptions make_options(const Variables& variables) {
  const std::string plugin = text_of(variables, "NCCL_NET_PLUGIN");
  return {.tuning = {.buffer_bytes = bytes_of(variables, "SMDDP_SLOT_BYTES"),
                     .network_buffer_bytes = bytes_of(variables, "SMDDP_WIRE_SLOT_BYTES"),
                     .small_bytes = bytes_of(variables, "SMDDP_SMALL_BYTES")},
          .network = transport::make_network(
              [&](std::string_view variable) { return text_of(variables, variable); }),
          .gpu_route = route_of(variables, "SMDDP_GPU_ROUTE"),
          .nccl_has_plugin = !plugin.empty() && plugin != "none",
          .log_level = level_of(variables, "SM_LOG_LEVEL")};
}

std::vector<std::string> describe_unknown_options(const Variables& variables) {
  constexpr std::string_view kPrefix = "SMDDP_";
  std::vector<std::string_view> given;
  for (const auto& [name, value] : variables) given.push_back(name);
  std::vector<std::string_view> known;
  for (const OptionRow& row : kOptions) {
    if (row.variable.starts_with(kPrefix)) known.push_back(row.variable);
  }
  return describe_unknown_variables(given, kPrefix, known);
}

}  // namespace smp::dataparallel
