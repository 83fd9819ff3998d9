// SPDX-License-Identifier: Apache-2.0
// Runs a piece of work that may throw our errors in a child process, and throws them here.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "entrypoint/process/process_runner.h"

namespace entrypoint {

/// Wraps `work`: its result or its error, as one text.
std::function<std::string()> reporting(std::function<std::string()> work);

/// The result out of such a text. Throws ConfigError and HostError as the work did, and HostError
/// for a child that ended without a word. `name` says whose.
std::string result_of(const std::string& name, const std::optional<ExitStatus>& ended,
                      const std::string& collected);

/// Starts the work and waits for its end: what it returned, or nothing when a stop came meanwhile,
/// whatever became of the work. Throws as result_of() does, and HostError after `limit`. The child
/// has ended or is killed then.
std::optional<std::string> run_helper(ProcessRunner& runner, const std::string& name,
                                      std::function<std::string()> work,
                                      std::chrono::milliseconds limit);

}  // namespace entrypoint
