// SPDX-License-Identifier: Apache-2.0
// Placement of a model's units on partitions. Pure but for the shapes that it reads.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "smp/model.h"

#include "smp_runtime/partition/job_partition.h"
#include "smp_runtime/partition/module_tree.h"
#include "smp_runtime/topology/parallel_config.h"

namespace smp::api {

struct Placement {
  partition::ModuleTree tree;
  partition::JobPartition partition;
};

/// By `pins`, if there are any or the job wants no automatic partition: the others then go to its
/// default_partition. Else by `partitioner`, as SMP_PARTITIONER names it, with parameters as costs;
/// in a chain a unit without any goes with the one before it. `model` says what units do not.
/// Depends on the arguments only. Throws ConfigError for no units, names that are empty, repeated
/// or unknown, fewer units than partitions, pins outside them, and shared parameters on two of
/// them.
Placement place_units(const std::vector<Unit>& units, bool is_chain,
                      const std::map<std::string, int>& pins,
                      const topology::ParallelConfig& config, const std::string& partitioner,
                      partition::JobModel model);

/// One line for each unit, with its parameters: equal on ranks that make the same model.
std::string units_text(const std::vector<Unit>& units);

}  // namespace smp::api
