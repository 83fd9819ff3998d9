// SPDX-License-Identifier: Apache-2.0
// The work of `train`: a job, from its tree to its end (run.cc), or a command beside it
// (subcommands.cc). Nothing that either writes shows one of the `secrets`.
#pragma once

#include "entrypoint/config/command_line.h"
#include "entrypoint/plan/secrets.h"

namespace entrypoint {

/// Reads the job, decides, prepares the host, fetches its code, plans (before both, where the code
/// is here), runs the plan, writes the marker, tells the other hosts, ends what is left; or runs
/// the check before the start alone. Returns the exit status of `train`. Errors are part of the
/// report.
int run(const CommandLine& line, const Secrets& secrets);

/// --plan, --doctor, --rank-exec, --make-tree, --report, --verify, --suggest, --help, --version, or
/// somebody else's command, which this process then becomes. Returns the exit status. Throws
/// ConfigError for what cannot be done.
int run_subcommand(const CommandLine& line, const Secrets& secrets);

}  // namespace entrypoint
