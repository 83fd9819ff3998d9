// SPDX-License-Identifier: Apache-2.0
// `docker run IMAGE bash`: the entry point runs somebody else's command.
#pragma once

#include <string>
#include <vector>

namespace entrypoint {

/// Becomes the command, with the hostname shim preloaded and SMP_EXTRA_CA_FILE trusted. Returns
/// only by throwing ConfigError, e.g. for a program that is not there.
[[noreturn]] void become(const std::vector<std::string>& command);

}  // namespace entrypoint
