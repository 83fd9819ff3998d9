// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/config/command_line.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include <boost/program_options/options_description.hpp>
#include <boost/program_options/value_semantic.hpp>
#include <fmt/format.h>

#include "entrypoint/config/launch_options.h"
#include "entrypoint/config/make_tree_command.h"
#include "entrypoint/config/option_values.h"
#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

namespace options = boost::program_options;

constexpr std::pair<const char*, Action> kActions[] = {
    {"plan", Action::kPlan}, {"check", Action::kCheck},     {"doctor", Action::kDoctor},
    {"help", Action::kHelp}, {"version", Action::kVersion},
};

options::options_description launcher_options() {
  options::options_description result = option_list("Options");
  result.add_options()                                                                     //
      ("plan", "print what would be started, with ranks and environment; change nothing")  //
      ("json", "with --plan or --doctor: one JSON object in place of text")(
          "doctor", "check this machine and say what is wrong with it")           //
      ("check", "measure how fast the job's ranks compute and reach each other")  //
      ("help,h", "print this")                                                    //
      ("version", "print the version");
  return result;
}

bool names_option(const std::string& argument, std::string_view option) {
  return argument == option || argument.starts_with(std::string(option) + "=");
}

CommandLine parse_rank_exec(std::span<const std::string> arguments) {
  CommandLine result{.action = Action::kRankExec};
  arguments = arguments.subspan(1);
  while (!arguments.empty() && arguments.front() != "--") {
    if (arguments.front() == "--rank-variables") {
      result.sets_rank_variables = true;
    } else if (arguments.front() == "--command-file" && arguments.size() > 1) {
      arguments = arguments.subspan(1);
      result.command_file = arguments.front();
    } else {
      break;
    }
    arguments = arguments.subspan(1);
  }
  const bool has_mark = !arguments.empty() && arguments.front() == "--";
  if (has_mark) result.command = {arguments.begin() + 1, arguments.end()};
  if (!has_mark || (result.command.empty() && result.command_file.empty())) {
    throw smp::ConfigError(
        "--rank-exec: expected `--rank-exec [--rank-variables] [--command-file FILE] -- COMMAND "
        "…`");
  }
  return result;
}

options::options_description report_options() {
  using Texts = std::vector<std::string>;
  options::options_description result = option_list("Options of --report");
  result.add_options()                                       //
      ("report", "write the report of a job")                //
      ("output", options::value<std::string>(), "where to")  //
      ("folder", options::value<Texts>()->composing(), "of a job, or of its records");
  return result;
}

CommandLine parse_report(std::span<const std::string> arguments) {
  const OptionValues values(report_options(), arguments, "folder");
  CommandLine result{.action = Action::kReport,
                     .page = values.get<std::string>("output").value_or("")};
  for (const std::string& folder :
       values.get<std::vector<std::string>>("folder").value_or(std::vector<std::string>{})) {
    result.folders.emplace_back(folder);
  }
  return result;
}

CommandLine parse_options(std::span<const std::string> arguments) {
  const auto word = std::ranges::find_if(
      arguments, [](const std::string& argument) { return !argument.starts_with('-'); });
  if (word != arguments.end()) {
    throw smp::ConfigError(
        "command line: \"{0}\" is no option; a job's tree is named by a variable: "
        "SAGEMAKER_BASE_DIR={0} train{1}",
        *word, word == arguments.begin() ? "" : " " + arguments.front());
  }
  const OptionValues values(launcher_options(), arguments);
  CommandLine result{.json = values.has("json")};
  std::string_view chosen;
  for (const auto& [name, action] : kActions) {
    if (!values.has(name)) continue;
    if (!chosen.empty()) {
      throw smp::ConfigError("command line: --{} and --{} exclude each other; see `train --help`",
                             chosen, name);
    }
    chosen = name;
    result.action = action;
  }
  if (result.json && result.action != Action::kPlan && result.action != Action::kDoctor) {
    throw smp::ConfigError("command line: --json goes with --plan or --doctor; see `train --help`");
  }
  return result;
}

constexpr std::string_view kUsage =
    R"(Runs a training job from its tree (/opt/ml, or SAGEMAKER_BASE_DIR).

Usage:
  train                          run the job
  train --plan [--json]          say what would be started, and stop
  train --doctor [--json]        check this machine and this job, with a remedy for each finding
  train --check                  on every host: measure the ranks' speed and network, name outliers
  train --make-tree DIR …        make a mock job tree
  train --report [FOLDER…] [--output FILE]
                                 write the report of a job from its records: of this tree, or of
                                 the folders of its hosts
  train PROGRAM ARG…             as an image's entry point: run another program
  train --rank-exec -- CMD…      run one rank; mpirun calls this

)";

constexpr std::string_view kExamples = R"(
Examples:
  Make a job of four MPI processes, look at it, run it:
    train --make-tree job --code src --program train.py --channel train=data \
          --hyperparameter epochs=3 --processes 4 \
          --mp-parameters '{"pipeline_parallel_degree": 2, "ddp": true}'
    SAGEMAKER_BASE_DIR=$PWD/job train --plan
    SAGEMAKER_BASE_DIR=$PWD/job train
  See what the second of two hosts would do, on any machine:
    train --make-tree job --code src --program train.py --hosts 2 --processes 8
    SAGEMAKER_BASE_DIR=$PWD/job/algo-2 train --plan
  Where only the environment can be changed, ask for the plan in the log:
    SM_LAUNCH_DRY_RUN=1 train
  See what bounded a job, of which two hosts kept records:
    train --report algo-1/output/data algo-2/output/data --output report.html
  A container that looks at itself, for Kubernetes' probes or by hand:
    train --doctor
  Values as JSON in place of Python's texts, in the order of the file:
    SM_LAUNCH_ARGS=json SM_LAUNCH_ARGS_ORDER=file train

)";

constexpr std::string_view kExitStatus = R"(
Exit status:
  0    the job succeeded; --plan, --make-tree, --report: done; --doctor: nothing is bad
  1    the script failed, the job cannot run, a host or device failed; --doctor: something is bad
  128+N  signal N asked for the stop and the script did not end with 0 (143: SIGTERM)
The reason is in output/failure of the tree. SM_LAUNCH_EXIT=propagate passes the script's own on; a
worker ends as the first host does.
)";

}  // namespace

CommandLine parse_command_line(std::span<const std::string> arguments) {
  if (!arguments.empty() && arguments.front() == "train") {
    arguments = arguments.subspan(1);
  } else if (!arguments.empty() && !arguments.front().starts_with('-')) {
    return {.action = Action::kExecOther, .command = {arguments.begin(), arguments.end()}};
  }
  if (!arguments.empty() && arguments.front() == "--rank-exec") return parse_rank_exec(arguments);
  const auto asks_help = [](const std::string& a) { return a == "--help" || a == "-h"; };
  if (std::ranges::any_of(arguments, asks_help)) return {.action = Action::kHelp};
  const auto makes_tree = [](const std::string& a) { return names_option(a, "--make-tree"); };
  if (std::ranges::any_of(arguments, makes_tree)) {
    return {.action = Action::kMakeTree, .tree = parse_make_tree(arguments)};
  }
  if (std::ranges::find(arguments, "--report") != arguments.end()) return parse_report(arguments);
  return parse_options(arguments);
}

CommandLine parse_command_line(int argc, const char* const* argv) {
  const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  return parse_command_line(arguments);
}

std::string nearest_command(const std::string& word) {
  for (const auto& [name, action] : kActions) {
    if (word == name) return fmt::format("did you mean `train --{}`?", name);
  }
  if (word == "report") return "did you mean `train --report`?";
  if (word == "make-tree") return "did you mean `train --make-tree DIR`?";
  if (word.ends_with(".py") || word.ends_with(".sh")) {
    return fmt::format(
        "to run a script make a job of it, `train --make-tree job --code FOLDER --program {0}`, "
        "and start that, `SAGEMAKER_BASE_DIR=job train`; or start it alone, `train {1} {0}`",
        word, word.ends_with(".py") ? "python3" : "bash");
  }
  return "see `train --help`";
}

std::string help_text() {
  std::ostringstream out;
  out << kUsage << launcher_options() << '\n' << make_tree_help() << kExamples;
  out << "Environment variables, all optional:\n";
  for (const smp::VariableRow& row : option_table()) {
    const std::string_view standard = row.standard.empty() ? "-" : row.standard;
    out << fmt::format("  {:<24} {:<7} {}\n", row.name, standard, row.meaning);
  }
  out << kExitStatus;
  return out.str();
}

}  // namespace entrypoint
