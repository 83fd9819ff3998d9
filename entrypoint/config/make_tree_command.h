// SPDX-License-Identifier: Apache-2.0
// `train --make-tree DIR …`: options, and the run itself.
#pragma once

#include <ostream>
#include <span>
#include <string>

#include "opt_ml_layout/tree_maker.h"

namespace entrypoint {

/// Reads the options, `--make-tree DIR` among them, in any order. Throws ConfigError.
opt_ml::TreeRequest parse_make_tree(std::span<const std::string> arguments);

/// The options as text for --help.
std::string make_tree_help();

/// Makes the tree and prints where it is and how to run a job on it.
void run_make_tree(const opt_ml::TreeRequest& request, std::ostream& out);

}  // namespace entrypoint
