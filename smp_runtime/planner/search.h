// SPDX-License-Identifier: Apache-2.0
// The best candidates for a model on its machines.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "smp_runtime/planner/candidates.h"
#include "smp_runtime/planner/machines.h"
#include "smp_runtime/planner/model_profile.h"
#include "smp_runtime/planner/prediction.h"

namespace smp::planner {

struct Ranked {
  Candidate candidate;
  Prediction prediction;
};

/// Another candidate that differs from a ranked one in one choice.
struct Change {
  std::string choice;  ///< as a user writes it: "microbatches=16"
  double speed = 0;    ///< samples a second, of the other's to this one's
  double memory_bytes = 0;
  bool fits = true;
};

struct Plan {
  std::vector<Ranked> best;      ///< the fastest first
  std::vector<Change> changes;   ///< of the first
  std::vector<Ranked> examined;  ///< all that were predicted, whether they fit or not
  int candidates = 0;
  /// Where nothing fits: the least hosts of this kind that hold the model, if 1,024 do.
  std::optional<int> hosts_needed;
  double least_bytes = 0;  ///< the least that any candidate takes, where nothing fits
};

/// The `count` best: a candidate is left out when even without any exchange, and with equal stages,
/// it would be slower than these. Of those that differ by less than a hundredth the plainest comes
/// first. Depends on the arguments only. Throws ConfigError for arguments that are none.
Plan plan(const ModelProfile& model, const Machines& machines, const SearchSpace& space,
          int count = 10);

}  // namespace smp::planner
