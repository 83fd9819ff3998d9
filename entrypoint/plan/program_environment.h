// SPDX-License-Identifier: Apache-2.0
// The environment of what this host starts: the job's variables, what its runner needs besides, and
// the certificate authorities of a company that it trusts besides the machine's own.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "entrypoint/plan/environment.h"
#include "entrypoint/plan/runner_choice.h"
#include "opt_ml_layout/paths.h"
#include "smp_runtime/core/variables.h"

namespace entrypoint {

/// Certificate authorities of a company, to be trusted besides the machine's own.
struct ExtraCertificates {
  std::filesystem::path system;  ///< PEM file of those that are trusted anyway
  std::filesystem::path extra;   ///< PEM file of the job's, SMP_EXTRA_CA_FILE
  std::filesystem::path joined;  ///< where both go before anything is fetched

  /// Names of the variables that are to say `joined`: by them Python, requests, curl, botocore and
  /// pip find a PEM file.
  std::vector<std::string> variables;
  /// Variables of this kind that the user has set to another file; they stay.
  std::vector<std::string> kept;
};

/// Pure; none when the environment names no file.
std::optional<ExtraCertificates> plan_certificates(const smp::Variables& environment,
                                                   const opt_ml::Layout& layout);

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
