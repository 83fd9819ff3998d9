// SPDX-License-Identifier: Apache-2.0
// Whether /dev/shm is large enough for what a training script does.
#pragma once

#include <optional>
#include <string>

#include "entrypoint/config/job_config.h"
#include "entrypoint/plan/host_facts.h"

namespace entrypoint {

/// Where it is small: its size, what becomes of shared tensors, and what to do. Pure.
std::optional<std::string> shared_memory_warning(const JobConfig& job, const HostFacts& facts);

/// What a process that a bus error ended has to know: how much shared memory there is. Pure; empty
/// where that is not known.
std::string shared_memory_text(const HostFacts& facts);

}  // namespace entrypoint
