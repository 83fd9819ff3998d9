// SPDX-License-Identifier: Apache-2.0
// Every composition of settings that the rules of a job allow for a model on its machines.
#pragma once

#include <string>
#include <vector>

#include "smp_runtime/planner/machines.h"
#include "smp_runtime/planner/model_profile.h"
#include "smp_runtime/topology/parallel_config.h"
#include "smp_runtime/topology/setting.h"

namespace smp::planner {

/// Settings and, by its number in the profile, how activations are recomputed.
struct Candidate {
  topology::ParallelConfig config;
  int recomputation = 0;
  /// The settings as a user writes them: what differs from the defaults.
  topology::Settings settings;

  /// True if modules compute in 16 bits, with masters in 32, whatever the script made them in.
  [[nodiscard]] bool is_narrow() const { return config.fp16 || config.bf16; }
};

struct SearchSpace {
  /// Settings that hold for every candidate: those of the job that the planner does not choose.
  topology::Settings fixed;
  /// Number formats to try, of "fp32", "fp16", "bf16": parameters as the script made them, or the
  /// settings of these names.
  std::vector<std::string> formats{"fp32"};
  /// Only what takes the least memory: the smallest microbatches, the most recomputed.
  bool least_memory = false;
};

/// How the candidate recomputes activations.
const Recomputation& recomputation_of(const ModelProfile& model, const Candidate& candidate);

/// Keys that the planner chooses; others are the job's.
bool is_chosen(std::string_view key);

/// In a fixed order, the plainest first. What rules refuse is no candidate: those of
/// make_parallel_config and validate_world, which `smp.init` asks, and tensor groups that would
/// span hosts.
std::vector<Candidate> make_candidates(const ModelProfile& model, const Machines& machines,
                                       const SearchSpace& space);

/// One composition, as a user wrote it. Throws ConfigError where the rules refuse it, microbatches
/// do not divide the batch, or the model is not marked for its tensor ranks.
Candidate make_candidate(const ModelProfile& model, const Machines& machines,
                         const topology::Settings& settings, int recomputation);

}  // namespace smp::planner
