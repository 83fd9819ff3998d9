// SPDX-License-Identifier: Apache-2.0
// The variables that user code sees: names, order and texts of the reference launcher, and a few
// more that its successors set.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "entrypoint/config/job_config.h"
#include "entrypoint/plan/host_facts.h"
#include "entrypoint/plan/job_network.h"

namespace entrypoint {

/// One exported variable. Order matters: it is the order of mpirun's -x flags.
struct Variable {
  std::string name;
  std::string value;

  bool operator==(const Variable&) const = default;
};

/// A file that has to be there before the command starts.
struct PlannedFile {
  std::filesystem::path path;
  std::string content;
};

struct EnvironmentInput {
  const JobConfig& job;
  const HostFacts& facts;
  const JobNetwork& network;
  const std::vector<std::string>& user_arguments;
};

struct JobEnvironment {
  std::vector<Variable> table;         ///< SM_* in the order of mpirun's -x flags, PYTHONPATH last
  std::vector<Variable> others;        ///< rendezvous, NCCL, names of newer SDKs
  std::vector<PlannedFile> files;      ///< values that are too long for a variable
  opt_ml::Value training_environment;  ///< SM_TRAINING_ENV as a value, for the log
  std::vector<std::string> notes;
  std::vector<std::string> warnings;
};

/// Pure. A value that exceeds what Linux lets one variable hold moves to a file, and NAME_FILE
/// names that; rendezvous and NCCL variables that the user set stay as they are.
JobEnvironment make_environment(const EnvironmentInput& input);

/// SM_HP_NAME, by which user code gets a hyperparameter.
std::string hyperparameter_variable(std::string_view name);

/// True if the variable tells one host from another, so that the master's value must not reach the
/// ranks of other hosts.
bool is_host_variable(std::string_view name);

/// The value of a variable in a list; null pointer when it is not there.
const std::string* find_variable(const std::vector<Variable>& variables, std::string_view name);

/// Adds a variable, or replaces the value of one of that name in place.
void set_variable(std::vector<Variable>& variables, std::string name, std::string value);

}  // namespace entrypoint
