// SPDX-License-Identifier: Apache-2.0
// The automatic partition of a job's model: what settings, parameters and devices tell the
// partitioner, alike for models in Python and in C++.
#pragma once

#include <cstdint>
#include <string>

#include "smp_runtime/partition/assignment.h"
#include "smp_runtime/partition/module_tree.h"
#include "smp_runtime/topology/parallel_config.h"

namespace smp::partition {

/// What the settings do not say of a model and of where it trains.
struct JobModel {
  std::int64_t elements = 0;         ///< of all its parameters
  std::int64_t parameter_bytes = 0;  ///< of these
  int replicas = 1;                  ///< ranks that hold the same parameters
  bool on_gpus = false;
  std::int64_t capacity_bytes = 0;  ///< what one device can hold of it; 0: not known
};

/// MemoryModel::state_factor with Adam, rounded up.
[[nodiscard]] int state_factor(const topology::ParallelConfig& config, const JobModel& model);

struct JobPartition {
  Assignment assignment;
  std::string summary;  ///< a line for the log: who decided, and what is expected of it
  bool fits = true;     ///< false: nothing fits capacity_bytes; the smallest found was taken
};

/// Into pipeline_parallel_degree partitions. `partitioner` is that of SMP_PARTITIONER, auto or
/// compat. Depends on the arguments only.
[[nodiscard]] JobPartition partition_job(const ModuleTree& tree,
                                         const topology::ParallelConfig& config,
                                         const JobModel& model, const std::string& partitioner);

}  // namespace smp::partition
