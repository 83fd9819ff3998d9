// SPDX-License-Identifier: Apache-2.0
// The environment of what this host starts: the job's variables, and what its runner needs besides.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "entrypoint/plan/environment.h"
#include "entrypoint/plan/extra_certificates.h"
#include "entrypoint/plan/runner_choice.h"

namespace entrypoint {

struct ProgramEnvironment {
  JobEnvironment job;
  /// All of them, those of `job` first, in table order. Variables of our own environment that are
  /// not named here are inherited.
  std::vector<Variable> variables;
  /// Variables of `variables` that are this host's own (SM_CURRENT_HOST, SM_NUM_GPUS, …), and
  /// OMP_NUM_THREADS, the share of the host's CPUs of one rank. mpirun does not carry them to other
  /// hosts: each host's `train` gives them to the ranks that start there. Empty without mpirun.
  std::vector<Variable> host_variables;
  std::vector<std::string> unset;  ///< inherited ones that must not reach the started command
  std::vector<std::string> notes;
  std::vector<std::string> warnings;
};

/// Pure.
ProgramEnvironment make_program_environment(const EnvironmentInput& input,
                                            const RunnerChoice& choice,
                                            const std::optional<ExtraCertificates>& certificates);

}  // namespace entrypoint
