// SPDX-License-Identifier: Apache-2.0
// Signs of EFA from libfabric's own program, which is started for that, and from the job's
// environment.
#pragma once

#include <chrono>
#include <string>

#include "entrypoint/config/process_environment.h"
#include "entrypoint/network/efa.h"

namespace entrypoint {

/// Sets `provider`, and `providers` where EFA is not among them. Starts fi_info of the folders of
/// `path` (PATH's value), up to twice; where it is not installed or does not end within `limit`,
/// nothing is set.
void ask_libfabric(const std::string& path, EfaProbe& probe,
                   std::chrono::seconds limit = std::chrono::seconds(30));

/// The plugin that connects NCCL to libfabric: NCCL_NET_PLUGIN as the job has it, else the file
/// that find_nccl_plugin() finds; empty: none.
std::string choose_nccl_plugin(const EnvironmentMap& environment);

}  // namespace entrypoint
