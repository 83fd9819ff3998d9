// SPDX-License-Identifier: Apache-2.0
// Sharded or 16-bit state of this rank from a SavedState, whatever layout that has.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/ivalue.h>

#include "smp_runtime/checkpoint/state/saved_state.h"
#include "smp_runtime/sharding/master_parameters.h"
#include "smp_runtime/sharding/parameter_store.h"

namespace smp::checkpoint {

/// Copies what `saved` has of the masters that `store` owns; `names` are those of its parameters,
/// by number. Modules see them from ParameterStore::publish() on. Throws ConfigError for elements
/// that no file has.
void restore_masters(const SavedState& saved, sharding::ParameterStore& store,
                     const std::vector<std::string>& names);

/// State that the optimizer keeps for `run`: tensors of its shape, and others; empty if nothing was
/// saved. Throws as restore_masters().
std::map<std::string, c10::IValue> state_of_run(const SavedState& saved,
                                                const sharding::MasterRun& run,
                                                const std::vector<std::string>& names);

}  // namespace smp::checkpoint
