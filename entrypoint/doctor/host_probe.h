// SPDX-License-Identifier: Apache-2.0
// Looks at the machine for what the plan has to know: processors, signs of EFA, and the folder in
// which mpirun and its daemons keep their sockets and shared memory.
#pragma once

#include <chrono>
#include <filesystem>
#include <span>
#include <string>

#include "entrypoint/config/job_config.h"
#include "entrypoint/network/efa.h"
#include "entrypoint/plan/host_facts.h"
#include "smp_runtime/core/variables.h"

namespace entrypoint {

/// Looks once. Starts nvidia-smi and neuron-ls where they are installed, fi_info where EFA is
/// expected; asks the resolver only for jobs that need an answer. Blocks for a few milliseconds,
/// with those tools for as long as they take, at most 30 s each.
HostFacts probe_host(const JobConfig& job);

/// Lines of `nvidia-smi --list-gpus` that name a GPU. Pure.
int count_gpus(const std::string& list);

/// Sum of nc_count over the devices that `neuron-ls -j` prints. Pure; 0 for anything else.
int count_neuron_cores(const std::string& json);

/// libsmp_hostname.so of the same installation or build tree as `launcher`, or an empty path.
std::filesystem::path find_hostname_shim(const std::filesystem::path& launcher);

/// Sets `provider`, and `providers` where EFA is not among them. Starts fi_info of the folders of
/// `path` (PATH's value), up to twice; where it is not installed or does not end within `limit`,
/// nothing is set.
void ask_libfabric(const std::string& path, EfaProbe& probe,
                   std::chrono::seconds limit = std::chrono::seconds(30));

/// The plugin that connects NCCL to libfabric: NCCL_NET_PLUGIN as the job has it, else the file
/// that find_nccl_plugin() finds; empty: none.
std::string choose_nccl_plugin(const smp::Variables& environment);

/// The folder as Open MPI looks for it: OMPI_MCA_orte_tmpdir_base, TMPDIR, TEMP, TMP, else /tmp.
/// Pure.
std::filesystem::path temporary_folder(const smp::Variables& environment);

/// Makes a folder in it, as mpirun will, and removes it. mpirun's own refusal would come with other
/// words for each version. Throws ConfigError. A folder that mpirun's command line, `argv`, names
/// is its own business.
void try_temporary_folder(std::span<const std::string> argv, const smp::Variables& environment);

}  // namespace entrypoint
