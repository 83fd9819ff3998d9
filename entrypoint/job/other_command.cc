// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/job/other_command.h"

#include <cerrno>
#include <cstring>

#include <unistd.h>

#include "entrypoint/config/command_line.h"
#include "entrypoint/config/job_config.h"
#include "entrypoint/doctor/host_probe.h"
#include "entrypoint/job/certificates.h"
#include "entrypoint/process/spawn.h"
#include "entrypoint/runners/child_environment.h"
#include "smp_runtime/core/error.h"

namespace entrypoint {

void become(const std::vector<std::string>& command) {
  std::vector<std::string> environment = current_environment();
  const std::string shim = find_hostname_shim(launcher_path()).string();
  const std::string own(value_of(environment, "LD_PRELOAD"));
  if (!shim.empty()) {
    set_variable(environment, "LD_PRELOAD", own.empty() ? shim : shim + ":" + own);
  }
  const EnvironmentMap own_environment = smp::read_variables();
  if (const auto certificates = plan_certificates(own_environment, find_layout(own_environment))) {
    join_certificates(*certificates);
    for (const std::string& name : certificates->variables) {
      set_variable(environment, name, certificates->joined.string());
    }
  }
  const std::string path(value_of(environment, "PATH"));
  const std::filesystem::path program = find_program(command.front(), path);
  if (program.empty()) {
    throw smp::ConfigError(
        "\"{}\" is neither `train`, nor one of its options, nor a program on PATH; {}",
        command.front(), nearest_command(command.front()));
  }
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> variables;
  for (const std::string& entry : environment) {
    variables.push_back(const_cast<char*>(entry.c_str()));
  }
  variables.push_back(nullptr);
  execve(program.c_str(), argv.data(), variables.data());
  throw smp::ConfigError("cannot execute {}: {}", program.string(), std::strerror(errno));
}

}  // namespace entrypoint
