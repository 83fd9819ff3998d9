// SPDX-License-Identifier: Apache-2.0
// Host names go into ssh's command line, its configuration and file names.
#pragma once

#include <string_view>

namespace entrypoint::launch {

/// Throws ConfigError unless `host` is letters, digits, dots, dashes and underscores, starts with
/// none of the latter three and has at most 253 bytes.
void check_host_name(std::string_view host);

}  // namespace entrypoint::launch
