// SPDX-License-Identifier: Apache-2.0
// Everything that `train` can do besides training.
#pragma once

#include "entrypoint/config/command_line.h"

namespace entrypoint {

/// --plan, --doctor, --rank-exec, --make-tree, --report, --help, --version, or somebody else's
/// command, which this process then becomes. Returns the exit status. Throws ConfigError for what
/// cannot be done.
int run_subcommand(const CommandLine& line);

}  // namespace entrypoint
