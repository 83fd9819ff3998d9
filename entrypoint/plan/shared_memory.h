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

}  // namespace entrypoint
