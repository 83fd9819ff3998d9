// SPDX-License-Identifier: Apache-2.0
// What a step takes under a candidate: time, by what it goes into, and memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "smp_runtime/planner/candidates.h"
#include "smp_runtime/planner/machines.h"
#include "smp_runtime/planner/memory_needs.h"
#include "smp_runtime/planner/model_profile.h"

namespace smp::planner {

/// Seconds of a step, of the rank that works longest. They add up to the step.
struct StepTimes {
  double computing = 0;
  double recomputing = 0;
  double waiting = 0;     ///< for other stages of the pipeline, and their messages
  double gathering = 0;   ///< parameters of other ranks, as far as nothing hides it
  double reducing = 0;    ///< gradients, as far as nothing hides it
  double exchanging = 0;  ///< among tensor ranks
  double updating = 0;    ///< the optimizer

  [[nodiscard]] double step() const {
    return computing + recomputing + waiting + gathering + reducing + exchanging + updating;
  }
};

struct Prediction {
  StepTimes times;
  MemoryNeeds memory;
  bool fits = true;
  double samples = 0;      ///< of all replicas, in a step
  double sent_bytes = 0;   ///< by a rank in a step, in the mean
  double busy_share = 0;   ///< of a pipeline's step in which its stages work; 1 without one
  std::string_view bound;  ///< the largest of the times, in words

  [[nodiscard]] double samples_per_second() const { return samples / times.step(); }
};

/// The partitioner decides where modules go, and the simulation of the schedule how long they take
/// together, as in the job itself.
Prediction predict(const ModelProfile& model, const Machines& machines, const Candidate& candidate);

/// Samples a second where stages are equal and nothing is exchanged: what `predict` says, or more;
/// by kEstimateSlack at most fewer, where devices of a pipeline hold several parts of the model.
/// A microbatch takes `microbatch_seconds`.
inline constexpr double kEstimateSlack = 1.15;
double most_samples_per_second(const ModelProfile& model, const Machines& machines,
                               const Candidate& candidate, double microbatch_seconds);

/// Samples of a step, of all replicas.
double samples_of_step(const ModelProfile& model, const Machines& machines,
                       const Candidate& candidate);

}  // namespace smp::planner
