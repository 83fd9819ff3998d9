// SPDX-License-Identifier: Apache-2.0
// The variables that user code sees: names, order and texts of the reference launcher, and a few
// more that its successors set.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "entrypoint/config/job_config.h"
#include "entrypoint/plan/host_facts.h"
#include "entrypoint/plan/launch_plan.h"

namespace entrypoint {

/// What the plan decided before it makes the environment.
struct EnvironmentInput {
  const JobConfig& job;
  const HostFacts& facts;
  std::vector<std::string> user_arguments;
  std::string master_address;  ///< name or address of the master host
  std::string interface_name;  ///< empty: none is named
  std::string gloo_interface;  ///< empty: none is named
  bool efa = false;
};

struct JobEnvironment {
  std::vector<Variable> table;   ///< SM_* in the order of mpirun's -x flags, PYTHONPATH last
  std::vector<Variable> others;  ///< rendezvous, NCCL, names of newer SDKs
  std::vector<PlannedFile> files;
  opt_ml::Value training_environment;
  std::vector<std::string> notes;
  std::vector<std::string> warnings;
};

/// Pure. A value that exceeds what Linux lets one variable hold moves to a file, and NAME_FILE
/// names that; rendezvous and NCCL variables that the user set stay as they are.
JobEnvironment make_environment(const EnvironmentInput& input);

/// SM_HP_NAME, by which user code gets a hyperparameter.
std::string hyperparameter_variable(std::string_view name);

/// Whether the variable tells one host from another, so that the master's value must not reach the
/// ranks of other hosts.
bool is_host_variable(std::string_view name);

/// The value of a variable in a list; null pointer when it is not there.
const std::string* find_variable(const std::vector<Variable>& variables, std::string_view name);

/// Adds a variable, or replaces the value of one of that name in place.
void set_variable(std::vector<Variable>& variables, std::string name, std::string value);

}  // namespace entrypoint
