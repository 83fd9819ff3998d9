// SPDX-License-Identifier: Apache-2.0
// What `train` intends to do on this host: a value made by pure functions, printed by `--plan` and
// carried out by launch/ and supervise/.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace entrypoint {

/// How the user's program is started.
enum class Runner { kProcess, kMpi };

/// What this host does for the runner.
enum class Role {
  kAlone,   ///< starts the program itself, waits for nobody
  kMaster,  ///< runs mpirun over the distribution hosts
  kWorker,  ///< serves the master's ranks over sshd and follows its outcome
};

/// One exported variable. Order matters: it is the order of mpirun's -x flags.
struct Variable {
  std::string name;
  std::string value;

  bool operator==(const Variable&) const = default;
};

struct LaunchPlan {
  Runner runner = Runner::kProcess;
  Role role = Role::kAlone;
  std::string reason;              ///< why this runner, one line
  std::string current_host;
  std::string master;              ///< first distribution host
  std::vector<std::string> hosts;  ///< distribution hosts in rank order; all hosts for kProcess
  int processes_per_host = 1;
  int total_processes = 1;         ///< mpirun's -np
  std::string interface_name;      ///< network interface of the job; empty on one host
  std::filesystem::path working_directory;

  /// The whole environment of the started command, SM_* and rendezvous variables included, in
  /// table order. Variables of our own environment that are not named here are inherited.
  std::vector<Variable> environment;

  /// What is executed on this host; for kMaster the mpirun line; empty for kWorker.
  std::vector<std::string> argv;

  /// What the user's script is called with, for the log and the failure text.
  std::vector<std::string> user_command;

  std::vector<std::string> warnings;  ///< one line each, said once at start

  [[nodiscard]] bool spans_hosts() const { return hosts.size() > 1 && runner != Runner::kProcess; }
};

}  // namespace entrypoint
