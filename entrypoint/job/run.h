// SPDX-License-Identifier: Apache-2.0
// The job, from its tree to its end.
#pragma once

#include "entrypoint/config/command_line.h"

namespace entrypoint {

/// Reads the job, decides, fetches its code, plans, prepares the host, runs the plan, writes the
/// marker, tells the other hosts, ends what is left; or runs the check before the start alone.
/// Returns the exit status of `train`. Throws nothing: errors are part of the report.
int run(const CommandLine& line);

}  // namespace entrypoint
