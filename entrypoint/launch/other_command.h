// SPDX-License-Identifier: Apache-2.0
// `docker run IMAGE bash`: the entry point runs somebody else's command.
#pragma once

#include <string>
#include <vector>

namespace entrypoint::launch {

/// Becomes the command, with the hostname shim preloaded. Returns only by throwing ConfigError: no
/// such program.
[[noreturn]] void become(const std::vector<std::string>& command);

}  // namespace entrypoint::launch
