// SPDX-License-Identifier: Apache-2.0
// Brings the user's code into the code folder.
#pragma once

#include <optional>

#include "entrypoint/launch/job.h"

namespace entrypoint::launch {

/// Carries out plan.code in a child process, which alone loads libcurl and libarchive. None: done,
/// or there was nothing to do. A value: a stop came, and this is how the job ends. Throws
/// ConfigError when the location holds no code or may not be read, HostError when it cannot be
/// reached. Blocks for at most an hour.
std::optional<Outcome> fetch_code(const LaunchPlan& plan, const JobSettings& settings,
                                  ProcessRunner& runner);

}  // namespace entrypoint::launch
