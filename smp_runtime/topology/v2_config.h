// SPDX-License-Identifier: Apache-2.0
// The settings of a job of SMP v2, `torch.sagemaker`, which trains by PyTorch's FSDP, checked and
// complete. `train --plan` and `torch.sagemaker.init` both go through here.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "smp_runtime/topology/setting.h"

namespace smp::topology {

/// Effective value of every key. The initialisers are the defaults; `V2Parameter::table()`
/// carries the keys' names, limits and meaning.
struct V2Config {
  static constexpr std::string_view kLibrary = "SMP v2";
  static constexpr std::string_view kModule = "torch.sagemaker";
  static constexpr std::string_view kDocument = "smp_runtime/topology/v2_parameters.md";
  using Field = std::variant<std::int64_t V2Config::*, bool V2Config::*>;

  std::int64_t hybrid_shard_degree = 0;
  bool sm_activation_offloading = true;
  std::int64_t activation_loading_horizon = 2;
  bool fsdp_cache_flush_warnings = true;
  bool allow_empty_shards = false;
  std::int64_t tensor_parallel_degree = 1;
  std::int64_t context_parallel_degree = 1;
  std::int64_t expert_parallel_degree = 1;
  std::int64_t random_seed = 12345;

  /// One line each, to be logged once per job. No part of the settings' identity.
  std::vector<std::string> warnings;

  /// A JSON object of all effective values.
  [[nodiscard]] std::string as_json() const;

  /// Ranks over which FSDP shards one copy of the model, or what tensor parallelism leaves of it,
  /// in a job of `world_size`; nothing where the script's own strategy says it.
  [[nodiscard]] std::optional<std::int64_t> shard_degree(std::int64_t world_size) const;
};

/// Settings of several origins, each of which goes before those behind it; a difference is a
/// warning. Throws ConfigError for an unknown key (naming near ones), one of SMP v1, a wrong type
/// and a value out of range. What the keys ask for together is not looked at.
V2Config make_v2_config(std::span<const Settings> origins);

/// Throws ConfigError for degrees that exclude each other, are not offered, or do not divide the
/// number of ranks.
void validate_world(const V2Config& config, int world_size);

}  // namespace smp::topology
