// SPDX-License-Identifier: Apache-2.0
// What the mpirun lines of all runners are made with: each option once, the user's winning.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "entrypoint/config/job_config.h"
#include "entrypoint/network/efa.h"
#include "entrypoint/plan/host_facts.h"
#include "entrypoint/plan/launch_plan.h"
#include "entrypoint/plan/mpi_options.h"

namespace entrypoint {

struct MpiCommandInput {
  const JobConfig& job;
  const HostFacts& facts;
  const CustomMpiOptions& custom;
  const EfaDecision& efa;
  std::vector<std::string> hosts;
  int processes_per_host = 1;
  int total_processes = 1;
  std::string interface_name;          ///< empty: none is named
  std::vector<Variable> table;         ///< SM_* of the job, in the order of -x flags
  std::vector<Variable> others;        ///< rendezvous and the like
  std::vector<std::string> command;    ///< of one rank
  std::filesystem::path command_file;  ///< has `command` where that is too long; or empty
};

struct MpiCommand {
  std::vector<std::string> argv;
  std::vector<std::string> notes;
};

/// Collects options in order; of options with one key the first one counts. `input` must outlive
/// it.
class MpirunLine {
 public:
  explicit MpirunLine(const MpiCommandInput& input) : input_(input) {}

  /// One option with its values.
  void add(const std::vector<std::string>& words);
  /// `-x NAME=VALUE`.
  void export_value(const std::string& name, const std::string& value);
  /// `-x NAME`: the value stays out of the command line.
  void export_name(const std::string& name);
  /// `-x NAME=VALUE` with the value of the job's environment, when it has one, in place of ours.
  void export_default(const std::string& name, const std::string& value);
  /// `-x NAME` if the job's environment has it; mpirun warns of names that are not set.
  void export_if_set(const std::string& name);

  /// `--host` (each NAME:N `with_slots`), `-np` and `--allow-run-as-root`.
  void add_hosts(bool with_slots);
  /// `-mca btl_tcp_if_include` and `-mca oob_tcp_if_include`, when an interface is named.
  void add_interface();
  /// NCCL's interface and verbosity; --NCCL_DEBUG among the custom options wins.
  void export_nccl();
  /// What libfabric and NCCL need for EFA; nothing when it is off.
  void export_fabric();
  /// LD_LIBRARY_PATH and PATH.
  void export_search_paths();
  /// The hostname shim before what the user preloads.
  void export_preload();

  /// The user's options stand here, before what is added later.
  void place_custom_options() { ours_.emplace_back(); }

  /// The whole line: mpirun, options, the parent of a rank (runners/rank_exec.h) with
  /// `rank_exec_options`, `starter` (a program that starts the rank's, or nothing) and the rank's
  /// command.
  [[nodiscard]] MpiCommand finish(const std::vector<std::string>& rank_exec_options,
                                  const std::vector<std::string>& starter) const;

  /// A variable of the job's environment; empty when it is not set.
  [[nodiscard]] std::string own(std::string_view name) const;

 private:
  const MpiCommandInput& input_;
  std::vector<MpiOption> ours_;  ///< one without words marks the place of the user's
};

}  // namespace entrypoint
