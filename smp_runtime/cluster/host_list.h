// SPDX-License-Identifier: Apache-2.0
// The two short forms in which Slurm writes its lists.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace smp::cluster {

/// The names of a Slurm node list: "a[1-3,07],b" is a1, a2, a3, a07, b. `variable` is where it
/// stands, for messages. Throws ConfigError for a text that is no such list, or one of more than
/// 65,536 names. Pure.
std::vector<std::string> expand_host_list(std::string_view text, std::string_view variable);

/// The counts of a list such as Slurm's of tasks a node: "2(x3),1" is 2, 2, 2, 1. Throws as above.
std::vector<int> expand_counts(std::string_view text, std::string_view variable);

}  // namespace smp::cluster
