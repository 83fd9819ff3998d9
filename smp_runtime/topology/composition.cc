// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/topology/composition.h"

#include <algorithm>
#include <array>
#include <variant>

#include <fmt/format.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/topology/parameter_table.h"

namespace smp::topology {
namespace {

using Config = ParallelConfig;

constexpr std::string_view kPipeline = "partitions";
constexpr std::string_view kTensor = "tensor_parallel_degree";
constexpr std::string_view kSharded = "sharded_data_parallel_degree";
constexpr std::string_view kOptimizer = "shard_optimizer_state";
constexpr std::string_view kFp16 = "fp16";
constexpr std::string_view kBf16 = "bf16";
constexpr std::string_view kOffload = "offload_activations";
constexpr std::string_view kDelayed = "delayed_parameter_initialization";
constexpr std::string_view kOrdered = "deterministic_server";

const std::array kFeatures{
    Feature{"pipeline stages", kPipeline,
            [](const Config& config) { return config.pipeline_parallel_degree > 1; }},
    Feature{"tensor parallelism", kTensor,
            [](const Config& config) { return config.tensor_parallel_degree > 1; }},
    Feature{"sharded data parallelism", kSharded,
            [](const Config& config) { return config.sharded_data_parallel_degree > 1; }},
    Feature{"optimizer-state sharding", kOptimizer,
            [](const Config& config) { return config.shard_optimizer_state; }},
    Feature{"fp16", kFp16, [](const Config& config) { return config.fp16; }},
    Feature{"bf16", kBf16, [](const Config& config) { return config.bf16; }},
    Feature{"activation offloading", kOffload,
            [](const Config& config) { return config.offload_activations; }},
    Feature{"delayed initialization", kDelayed,
            [](const Config& config) { return config.delayed_parameter_initialization; }},
    Feature{"deterministic order", kOrdered,
            [](const Config& config) { return config.deterministic_server; }},
};

constexpr std::array kExclusions{
    Exclusion{kPipeline, kSharded,
              "sharded data parallelism runs without pipeline stages; set one of them to 1"},
    Exclusion{kSharded, kOptimizer,
              "sharded data parallelism already shards the optimizer's state; remove "
              "shard_optimizer_state"},
    Exclusion{kFp16, kBf16, "they exclude each other; keep one of them"},
};

const Feature& feature(std::string_view key) {
  const auto* found = std::find_if(kFeatures.begin(), kFeatures.end(),
                                   [&](const Feature& one) { return one.key == key; });
  SMP_CHECK(found != kFeatures.end(), "{} is no feature", key);
  return *found;
}

std::string setting(const Config& config, std::string_view key) {
  const Value value = find_parameter(key)->read(config);
  return fmt::format("{}={}", key, to_text(value));
}

/// The number of the exclusion of two features, from 1; 0 for none.
std::size_t exclusion_of(std::string_view one, std::string_view other) {
  for (std::size_t index = 0; index < kExclusions.size(); ++index) {
    const Exclusion& pair = kExclusions[index];
    if ((pair.one == one && pair.other == other) || (pair.one == other && pair.other == one)) {
      return index + 1;
    }
  }
  return 0;
}

}  // namespace

std::span<const Feature> features() { return kFeatures; }
std::span<const Exclusion> exclusions() { return kExclusions; }

std::optional<std::string> excluded(const ParallelConfig& config) {
  for (const Exclusion& pair : kExclusions) {
    if (!feature(pair.one).asked(config) || !feature(pair.other).asked(config)) continue;
    return fmt::format("{} cannot be combined with {}: {}", setting(config, pair.one),
                       setting(config, pair.other), pair.reason);
  }
  return std::nullopt;
}

std::string compositions_as_markdown() {
  std::string text = "| |";
  std::string rule = "|---|";
  for (const Feature& column : kFeatures) {
    text += fmt::format(" {} |", column.name);
    rule += "---|";
  }
  text += "\n" + rule + "\n";
  for (const Feature& row : kFeatures) {
    text += fmt::format("| **{}** (`{}`) |", row.name, row.key);
    for (const Feature& column : kFeatures) {
      const std::size_t number = exclusion_of(row.key, column.key);
      if (row.key == column.key) {
        text += " |";
      } else if (number == 0) {
        text += " yes |";
      } else {
        text += fmt::format(" no ({}) |", number);
      }
    }
    text += "\n";
  }
  text += "\n";
  for (std::size_t index = 0; index < kExclusions.size(); ++index) {
    const Exclusion& pair = kExclusions[index];
    text += fmt::format("{}. {} with {}: {}.\n", index + 1, feature(pair.one).name,
                        feature(pair.other).name, pair.reason);
  }
  return text;
}

}  // namespace smp::topology
