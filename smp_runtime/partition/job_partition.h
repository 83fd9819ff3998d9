// SPDX-License-Identifier: Apache-2.0
// The automatic partition of a job's model by its settings, parameters and devices, alike for
// models in Python and in C++.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "smp_runtime/partition/assignment.h"
#include "smp_runtime/partition/auto_partitioner.h"
#include "smp_runtime/partition/module_tree.h"
#include "smp_runtime/schedule/task_order.h"
#include "smp_runtime/topology/parallel_config.h"

namespace smp::partition {

/// Facts about a model and its devices that the settings do not give.
struct JobModel {
  std::int64_t elements = 0;         ///< of all its parameters
  std::int64_t parameter_bytes = 0;  ///< of these
  int replicas = 1;                  ///< ranks that hold the same parameters
  bool on_gpus = false;
  std::int64_t device_bytes = 0;     ///< memory of one device; 0: not known
  std::int64_t recompute_bytes = 0;  ///< needed there for one recompute at a time
};

/// Share of a device's memory for the model; the rest is for the CUDA context, communication
/// buffers and fragmentation.
inline constexpr double kUsableShare = 0.9;

/// The schedule of a step by the settings.
[[nodiscard]] schedule::ScheduleShape shape_of(const topology::ParallelConfig& config);

/// MemoryModel::state_factor with Adam, rounded up.
[[nodiscard]] int state_factor(const topology::ParallelConfig& config, const JobModel& model);

/// Expectations of a step, by the simulation of its schedule.
struct StepPrediction {
  double step_ms = 0;
  double use = 0;          ///< mean share of it in which a partition works
  std::int64_t bytes = 0;  ///< of the fullest partition: the model's state, and activations
};

struct JobPartition {
  Assignment assignment;
  std::string summary;  ///< a line for the log: who decided, and what is expected of it
  std::string warning;  ///< what to warn users of; empty if nothing
  std::optional<StepPrediction> predicted;  ///< none: the partitioner did not decide, or not by it
};

/// The decision of the partitioner "auto", with what it expects.
[[nodiscard]] AutoDecision decide_job(const ModuleTree& tree,
                                      const topology::ParallelConfig& config,
                                      const JobModel& model);

/// Into pipeline_parallel_degree partitions. `partitioner` is that of SMP_PARTITIONER, auto or
/// compat. Depends on the arguments only.
[[nodiscard]] JobPartition partition_job(const ModuleTree& tree,
                                         const topology::ParallelConfig& config,
                                         const JobModel& model, const std::string& partitioner);

}  // namespace smp::partition
