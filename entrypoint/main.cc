// SPDX-License-Identifier: Apache-2.0
// `train`: the job, or a command beside it.
#include <exception>

#include "entrypoint/config/command_line.h"
#include "entrypoint/job/ending.h"
#include "entrypoint/job/run.h"

int main(int argc, char** argv) {
  using entrypoint::Action;
  entrypoint::log_as_the_launcher();
  try {
    const smp::Variables environment = smp::read_variables();
    const entrypoint::Secrets secrets =
        entrypoint::keep_secrets(entrypoint::find_layout(environment), environment);
    const entrypoint::CommandLine line = entrypoint::parse_command_line(argc, argv);
    const bool is_job = line.action == Action::kTrain || line.action == Action::kCheck;
    return is_job ? entrypoint::run(line, secrets) : entrypoint::run_subcommand(line, secrets);
  } catch (const std::exception& error) {
    return entrypoint::print_error(error);
  }
}
