// SPDX-License-Identifier: Apache-2.0
// The mpirun lines of all runners: each option once, the user's winning.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "entrypoint/plan/job_outline.h"

namespace entrypoint {

struct MpiCommandInput {
  const JobConfig& job;
  const HostFacts& facts;
  const JobOutline& outline;
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
  /// Variables of libfabric and NCCL for EFA; none when EFA is off.
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

/// The line of the MPI runner, on the master host. Pure. Options in the reference launcher's order,
/// each key once, the user's custom ones winning; variables that tell hosts apart are not exported;
/// secrets go by name only.
MpiCommand make_mpi_command(const MpiCommandInput& input);

/// The line of the SMDDP runner, on the master host: for scripts written for Amazon's data-parallel
/// library, and for native DDP over it. Pure. Options in the reference launcher's order, each key
/// once, the user's custom ones winning. No SM_* is exported: each host's `train` gives its ranks
/// what it knows itself. Ranks get RANK, LOCAL_RANK, WORLD_SIZE and LOCAL_WORLD_SIZE. The outline's
/// custom options are the runner's own.
MpiCommand make_smddp_command(const MpiCommandInput& input);

}  // namespace entrypoint
