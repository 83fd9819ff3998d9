// SPDX-License-Identifier: Apache-2.0
// Looks at the machine for what the plan has to know.
#pragma once

#include <filesystem>
#include <string>

#include "entrypoint/config/job_config.h"
#include "entrypoint/plan/host_facts.h"

namespace entrypoint {

/// Looks once. Starts nvidia-smi and neuron-ls where they are installed, fi_info where EFA is
/// expected; asks the resolver only for jobs that need an answer. Blocks for a few milliseconds,
/// with those tools for as long as they take, at most 30 s each.
HostFacts probe_host(const JobConfig& job);

/// Lines of `nvidia-smi --list-gpus` that name a GPU. Pure.
int count_gpus(const std::string& list);

/// Sum of nc_count over the devices that `neuron-ls -j` prints. Pure; 0 for anything else.
int count_neuron_cores(const std::string& json);

/// The interpreter of the user's script: `chosen` (SM_LAUNCH_PYTHON), else the first of python3 and
/// python on `path`; empty when there is none. Where a version manager's script stands in its
/// place, the interpreter behind it, which is asked for its name. Throws ConfigError when the
/// chosen one is not there.
std::filesystem::path find_python(const std::string& chosen, const std::string& path);

/// libsmp_hostname.so of the same installation or build tree as `launcher`, or an empty path.
std::filesystem::path find_hostname_shim(const std::filesystem::path& launcher);

}  // namespace entrypoint
