// SPDX-License-Identifier: Apache-2.0
// Brings the user's code into the code folder.
#pragma once

#include "entrypoint/fetch/transfer_module.h"
#include "entrypoint/plan/code_source.h"
#include "entrypoint/process/process_runner.h"

namespace entrypoint::fetch {

/// Fetches `source` into its folder in a child process, which alone loads libcurl and libarchive.
/// Returns false when a stop came first. Throws ConfigError when the location holds no code or may
/// not be read, HostError when it cannot be reached. Blocks for at most an hour.
bool fetch_code(const CodeSource& source, const TransferSettings& settings, ProcessRunner& runner);

}  // namespace entrypoint::fetch
