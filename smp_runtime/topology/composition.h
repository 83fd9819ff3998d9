// SPDX-License-Identifier: Apache-2.0
// Table of the features of a job that do not go together. `train --plan` and `smp.init` refuse
// forbidden pairs with the reasons given here, and the documentation's table is made of it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "smp_runtime/topology/parallel_config.h"

namespace smp::topology {

/// Something that a job's settings ask for.
struct Feature {
  std::string_view name;  ///< as the table's heading, such as "sharded data parallelism"
  std::string_view key;   ///< of the setting that asks for it
  bool (*asked)(const ParallelConfig&);
};

/// Two features that do not go together: they contradict each other, or the published library
/// refuses them. All other pairs do.
struct Exclusion {
  std::string_view one;     ///< a Feature's key
  std::string_view other;   ///< a Feature's key
  std::string_view reason;  ///< why, and what to do; completes "X cannot be combined with Y: "
};

std::span<const Feature> features();
std::span<const Exclusion> exclusions();

/// The first exclusion whose features `config` asks for both, as "a=1 cannot be combined with b=2:
/// reason"; none if `config` can be run.
std::optional<std::string> excluded(const ParallelConfig& config);

/// A Markdown table, features by features, and the reasons below it.
std::string compositions_as_markdown();

}  // namespace smp::topology
