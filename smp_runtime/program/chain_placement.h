// SPDX-License-Identifier: Apache-2.0
// Which partition runs each unit of a chain. Pure but for the shapes that it reads.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "smp/model.h"

#include "smp_runtime/partition/assignment.h"
#include "smp_runtime/topology/parallel_config.h"

namespace smp::program {

/// By `pins`, if there are any or the job wants no automatic partition: the others then go to its
/// default_partition. Else by the partitioner, with parameters as costs. Depends on the arguments
/// only. Throws ConfigError for no units, names that are empty, repeated or unknown, fewer units
/// than partitions, pins outside them, and shared parameters on two of them.
partition::Assignment place_chain(const std::vector<Unit>& units,
                                  const std::map<std::string, int>& pins,
                                  const topology::ParallelConfig& config);

/// One line for each unit, with its parameters: equal on ranks that make the same model.
std::string chain_text(const std::vector<Unit>& units);

}  // namespace smp::program
