// SPDX-License-Identifier: Apache-2.0
// What a host's `train` saved for its ranks, where the job goes on without some of its hosts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace entrypoint {

/// Takes the hosts of `before` that `now` lacks, both SM_HOSTS, out of the variables of a host that
/// list hosts, and counts this host's number again. Pure.
void leave_out_lost_hosts(std::vector<std::string>& environment, std::string_view before,
                          std::string_view now);

}  // namespace entrypoint
