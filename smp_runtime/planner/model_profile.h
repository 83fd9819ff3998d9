// SPDX-License-Identifier: Apache-2.0
// A model and its batch as the planner sees them: modules with what running them takes, counted and
// not timed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smp_runtime/partition/module_tree.h"

namespace smp::planner {

/// Operations of one kind that a module runs by itself, forward, for the whole batch.
struct Work {
  double flops = 0;            ///< of each
  double bytes = 0;            ///< that each reads and writes, but for parameters
  double parameter_bytes = 0;  ///< that each reads of parameters, whatever the batch
  std::int64_t count = 1;
};

struct ProfiledModule {
  /// Its bytes are those of the whole batch, in the types of the trace; times are not used.
  partition::Module module;
  int parent = -1;
  std::vector<Work> work;
  bool is_split = false;  ///< what it does is divided by the tensor ranks
  /// What tensor ranks hand each other around it, forward: whole tensors of one rank's batch.
  std::int64_t exchanged_bytes = 0;
};

struct ProfiledParameter {
  std::string name;
  std::int64_t elements = 0;
  std::int64_t bytes = 0;
  bool is_split = false;
  bool trains = true;
};

/// One way to recompute activations in the backward.
struct Recomputation {
  std::string name;                      ///< "none", "blocks", "all", "script"
  std::string change;                    ///< what the script has to say for it; empty: nothing
  std::vector<std::int64_t> kept_bytes;  ///< by module: activations that stay, of the whole batch
  std::vector<bool> recomputed;          ///< by module: it runs forward twice
  std::int64_t once_bytes = 0;           ///< kept beside them during one recompute

  [[nodiscard]] bool recomputes() const;  ///< any module
};

struct ModelProfile {
  std::vector<ProfiledModule> modules;  ///< parents first; the first is the root
  std::vector<ProfiledParameter> parameters;
  std::vector<partition::Tensor> tensors;     ///< of the whole batch
  std::vector<Recomputation> recomputations;  ///< the first is the script's own
  std::int64_t batch = 1;                     ///< samples in one call of the step
  int element_bytes = 4;                      ///< of the activations in the trace
  std::string optimizer;                      ///< its class; empty: none was seen
  int moments = 2;                            ///< tensors that it keeps a parameter
  std::vector<int> tensor_degrees;            ///< that the script's marks allow, beside 1
  bool is_counted = true;  ///< false: the step could not be traced, and only state is known

  [[nodiscard]] std::int64_t elements() const;
  [[nodiscard]] std::int64_t parameter_bytes() const;
  /// The way that recomputes nothing; null where the script recomputes in any case.
  [[nodiscard]] const Recomputation* without_recomputation() const;
};

/// Throws ConfigError for a profile whose lists do not fit each other, or that has no module.
void check_profile(const ModelProfile& model);

}  // namespace smp::planner
