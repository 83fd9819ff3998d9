// SPDX-License-Identifier: Apache-2.0
// The hosts that work together, and the one that leads them.
#pragma once

#include "entrypoint/config/job_config.h"

namespace entrypoint {

/// Fills `distribution`, `hosts` and `master` from what else `job` holds. Throws ConfigError for
/// counts and lists of another type, and for groups that do not exist.
void resolve_distribution(JobConfig& job);

}  // namespace entrypoint
