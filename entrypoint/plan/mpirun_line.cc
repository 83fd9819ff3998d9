// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/mpirun_line.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "entrypoint/plan/words.h"

namespace entrypoint {

void MpirunLine::add(const Words& words) {
  MpiOption option = group_mpi_options(words).front();
  // A variable that goes by value first and by name later counts once.
  const bool there = std::ranges::find(ours_, option.key, &MpiOption::key) != ours_.end();
  if (!there) ours_.push_back(std::move(option));
}

void MpirunLine::export_value(const std::string& name, const std::string& value) {
  add({"-x", name + "=" + value});
}

void MpirunLine::export_name(const std::string& name) { add({"-x", name}); }

void MpirunLine::export_default(const std::string& name, const std::string& value) {
  // The name would suffice for a value of the user's, but the value tells the command's reader
  // more.
  const std::string set_by_user = own(name);
  export_value(name, set_by_user.empty() ? value : set_by_user);
}

void MpirunLine::export_if_set(const std::string& name) {
  if (!own(name).empty()) export_name(name);
}

void MpirunLine::add_hosts(bool with_slots) {
  Words hosts;
  for (const std::string& host : input_.outline.runner.hosts) {
    hosts.push_back(
        with_slots ? fmt::format("{}:{}", host, input_.outline.runner.processes_per_host) : host);
  }
  add({"--host", fmt::format("{}", fmt::join(hosts, ","))});
  add({"-np", std::to_string(input_.outline.ranks.total_processes)});
  add({"--allow-run-as-root"});
}

void MpirunLine::add_interface() {
  if (input_.outline.network.interface_name.empty()) return;
  add({"-mca", "btl_tcp_if_include", input_.outline.network.interface_name});
  add({"-mca", "oob_tcp_if_include", input_.outline.network.interface_name});
}

void MpirunLine::export_nccl() {
  if (!input_.outline.network.interface_name.empty())
    export_default("NCCL_SOCKET_IFNAME", input_.outline.network.interface_name);
  if (input_.outline.mpi_options.nccl_debug) {
    export_value("NCCL_DEBUG", *input_.outline.mpi_options.nccl_debug);
  } else {
    export_default("NCCL_DEBUG", "INFO");
  }
}

void MpirunLine::export_fabric() {
  if (!input_.outline.network.efa.enabled) return;
  export_default("FI_PROVIDER", "efa");
  export_default("NCCL_PROTO", "simple");
  if (input_.outline.network.efa.device_rdma) export_default("FI_EFA_USE_DEVICE_RDMA", "1");
  // EFA and a data loader that forks corrupt memory without it. Its older name,
  // RDMAV_FORK_SAFE, slows allocation down: only when the user sets it.
  export_default("FI_EFA_FORK_SAFE", "1");
  export_if_set("RDMAV_FORK_SAFE");
  if (!input_.outline.network.efa.nccl_plugin.empty()) {
    export_default("NCCL_NET_PLUGIN", input_.outline.network.efa.nccl_plugin);
  }
}

void MpirunLine::export_search_paths() {
  export_if_set("LD_LIBRARY_PATH");
  export_name("PATH");
}

void MpirunLine::export_preload() {
  const std::string shim = input_.facts.hostname_shim.string();
  const std::string preload = own("LD_PRELOAD");
  if (!shim.empty()) {
    export_value("LD_PRELOAD", preload.empty() ? shim : shim + ":" + preload);
  } else if (!preload.empty()) {
    export_name("LD_PRELOAD");
  }
}

MpiCommand MpirunLine::finish(const Words& rank_exec_options, const Words& starter) const {
  MergedMpiOptions merged = merge_mpi_options(ours_, input_.outline.mpi_options.options);
  MpiCommand result{.argv = {"mpirun"}, .notes = std::move(merged.notes)};
  for (const MpiOption& option : merged.ours) {
    append(result.argv, option.words);
    if (!option.words.empty()) continue;
    for (const MpiOption& custom : merged.custom) append(result.argv, custom.words);
  }
  append(result.argv, {input_.facts.launcher.string(), "--rank-exec"});
  append(result.argv, rank_exec_options);
  if (!input_.command_file.empty())
    append(result.argv, {"--command-file", input_.command_file.string()});
  append(result.argv, {"--"});
  append(result.argv, starter);
  if (input_.command_file.empty()) append(result.argv, input_.command);
  return result;
}

std::string MpirunLine::own(std::string_view name) const {
  return value_or(input_.job.environment, name);
}

}  // namespace entrypoint
