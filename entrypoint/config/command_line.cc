// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/config/command_line.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include <boost/program_options.hpp>
#include <fmt/format.h>

#include "entrypoint/config/knobs.h"
#include "entrypoint/config/make_tree_command.h"
#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

namespace options = boost::program_options;

constexpr std::pair<const char*, Action> kActions[] = {
    {"plan", Action::kPlan},
    {"doctor", Action::kDoctor},
    {"help", Action::kHelp},
    {"version", Action::kVersion},
};

options::options_description description() {
  constexpr unsigned kColumns = 100;
  options::options_description result("Options", kColumns, kColumns / 2);
  result.add_options()                                                                     //
      ("plan", "print what would be started, with ranks and environment; change nothing")  //
      ("json", "with --plan: one JSON object in place of text")                            //
      ("doctor", "check this machine and say what is wrong with it")                       //
      ("help,h", "print this")                                                             //
      ("version", "print the version");
  return result;
}

bool names_option(const std::string& argument, std::string_view option) {
  return argument == option || argument.starts_with(std::string(option) + "=");
}

CommandLine parse_rank_exec(std::span<const std::string> arguments) {
  if (arguments.size() < 3 || arguments[1] != "--") {
    throw smp::ConfigError("--rank-exec: expected `--rank-exec -- COMMAND …`");
  }
  const auto command = arguments.subspan(2);
  return {.action = Action::kRankExec, .command = {command.begin(), command.end()}};
}

CommandLine parse_options(std::span<const std::string> arguments) {
  options::variables_map values;
  try {
    const int style =
        options::command_line_style::unix_style & ~options::command_line_style::allow_guessing;
    const options::positional_options_description no_words;
    options::store(options::command_line_parser({arguments.begin(), arguments.end()})
                       .options(description())
                       .positional(no_words)
                       .style(style)
                       .run(),
                   values);
  } catch (const options::error& error) {
    throw smp::ConfigError("command line: {}; see `train --help`", error.what());
  }
  CommandLine result{.json = values.count("json") > 0};
  std::string_view chosen;
  for (const auto& [name, action] : kActions) {
    if (values.count(name) == 0) continue;
    if (!chosen.empty()) {
      throw smp::ConfigError("command line: --{} and --{} exclude each other; see `train --help`",
                             chosen, name);
    }
    chosen = name;
    result.action = action;
  }
  if (result.json && result.action != Action::kPlan) {
    throw smp::ConfigError("command line: --json goes with --plan only; see `train --help`");
  }
  return result;
}

constexpr std::string_view kUsage =
    R"(Runs a training job from its tree (/opt/ml, or SAGEMAKER_BASE_DIR).

Usage:
  train                          run the job
  train --plan [--json]          say what would be started, and stop
  train --doctor                 check the machine
  train --make-tree DIR …        make a mock job tree
  train PROGRAM ARG…             as an image's entry point: run another program
  train --rank-exec -- CMD…      run one rank; mpirun calls this

)";

constexpr std::string_view kExamples = R"(
Examples:
  train --make-tree job --code src --program train.py --channel train=data \
        --hyperparameter epochs=3 --processes 4 \
        --mp-parameters '{"pipeline_parallel_degree": 2, "ddp": true}'
  SAGEMAKER_BASE_DIR=$PWD/job train --plan
  SAGEMAKER_BASE_DIR=$PWD/job train

)";

}  // namespace

CommandLine parse_command_line(std::span<const std::string> arguments) {
  if (!arguments.empty() && arguments.front() == "train") {
    arguments = arguments.subspan(1);
  } else if (!arguments.empty() && !arguments.front().starts_with('-')) {
    return {.action = Action::kExecOther, .command = {arguments.begin(), arguments.end()}};
  }
  if (!arguments.empty() && arguments.front() == "--rank-exec") return parse_rank_exec(arguments);
  const auto makes_tree = [](const std::string& a) { return names_option(a, "--make-tree"); };
  if (std::ranges::any_of(arguments, makes_tree)) {
    return {.action = Action::kMakeTree, .tree = parse_make_tree(arguments)};
  }
  return parse_options(arguments);
}

CommandLine parse_command_line(int argc, const char* const* argv) {
  const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  return parse_command_line(arguments);
}

std::string help_text() {
  std::ostringstream out;
  out << kUsage << description() << '\n' << make_tree_help() << kExamples;
  out << "Environment variables, all optional:\n";
  for (const KnobRow& row : knob_table()) {
    const std::string_view standard = row.standard.empty() ? "-" : row.standard;
    out << fmt::format("  {:<25} {:<7} {}\n", row.variable, standard, row.meaning);
  }
  out << "\nExit status: 0 success, 1 failure; the reason is in output/failure of the tree.\n";
  return out.str();
}

}  // namespace entrypoint
