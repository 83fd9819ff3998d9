// SPDX-License-Identifier: Apache-2.0
// Commands: of the user's program by itself, and by which the job's runner starts it on this host.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "entrypoint/plan/entry_point.h"
#include "entrypoint/plan/job_outline.h"

namespace entrypoint {

struct PlannedCommand {
  std::vector<std::string> argv;  ///< of this host; for kMaster the mpirun line; empty for kWorker
  /// What starts the user's script, for the log and the failure text: under mpirun the command of
  /// each rank, otherwise `argv`.
  std::vector<std::string> user_command;
  std::optional<PlannedFile> file;  ///< that ranks take `user_command` from where it is too long
  std::vector<std::string> notes;
  std::vector<std::string> warnings;
};

/// The command of a plain process: `python -- script args`, `python -m module args`,
/// `/bin/sh -c './script args'`, `./program args` or `/path/program args`. Where one argument
/// cannot hold all of a script's, its shell gets them one by one.
std::vector<std::string> process_command(const EntryPoint& entry,
                                         const std::filesystem::path& python,
                                         const std::vector<std::string>& arguments);

/// The command of one MPI rank: Python under `-m mpi4py` when that is there, so that an uncaught
/// exception on one rank ends all of them.
std::vector<std::string> rank_command(const EntryPoint& entry, const std::filesystem::path& python,
                                      bool has_mpi4py, const std::vector<std::string>& arguments);

/// The command for SAGEMAKER_TRAINING_MODULE=module:function, which images of other frameworks set:
/// a program that cannot import Python has Python do it.
///
/// `python -c PROGRAM module:function`: the program imports the module and calls the function
/// without arguments, as the reference launcher does. Throws ConfigError when `python` is empty or
/// `module` is not of that form.
std::vector<std::string> make_training_module_command(const std::string& module,
                                                      const std::filesystem::path& python);

/// A program, and what this host knows of the job that it is started for.
struct Program {
  const JobConfig& job;
  const HostFacts& facts;
  const JobOutline& outline;
  const EntryPoint& entry;
  const Words& arguments;
  std::string port;  ///< of torchrun's rendezvous
};

/// Pure. By the runner of the outline: an mpirun line (mpirun_line.h) on the master host; `torchrun
/// --nnodes N --nproc_per_node P` with the rendezvous, on one host its port alone, then script or
/// `-m MODULE`; else a plain process. An interpreter of the user's choice (SM_LAUNCH_PYTHON) runs
/// torchrun's module instead of the program, which belongs to another one. Throws as
/// check_torchrun().
PlannedCommand plan_command(const Program& program);

/// Throws ConfigError for entry points that are no Python scripts or modules, and where torchrun is
/// missing.
void check_torchrun(const JobConfig& job, const HostFacts& facts, const EntryPoint& entry);

}  // namespace entrypoint
