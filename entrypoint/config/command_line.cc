// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/config/command_line.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <utility>

#include <boost/program_options/errors.hpp>
#include <boost/program_options/options_description.hpp>
#include <boost/program_options/parsers.hpp>
#include <boost/program_options/value_semantic.hpp>
#include <boost/program_options/variables_map.hpp>
#include <fmt/format.h>

#include "entrypoint/config/launch_options.h"
#include "entrypoint/config/shell_text.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

namespace options = boost::program_options;
using Texts = std::vector<std::string>;

// Boost.Program_options in the one style that `train` has: long options without abbreviations, one
// wording of mistakes, and no words beside them but where a command says so.

/// " (did you mean --doctor?)", or nothing.
std::string meant(const std::string& unknown, const options::options_description& known) {
  std::vector<std::string_view> names;
  for (const auto& option : known.options()) names.push_back(option->long_name());
  const auto near =
      smp::near_names(std::string_view(unknown).substr(unknown.find_first_not_of('-')),
                      std::span<const std::string_view>(names));
  return near.empty() ? "" : fmt::format(" (did you mean --{}?)", near.front());
}

/// An empty list of options, as wide as the help text; the caller adds to it.
options::options_description option_list(const std::string& title) {
  constexpr unsigned kColumns = 100;
  return options::options_description(title, kColumns, kColumns / 2);
}

/// The options that one command line gives, by name.
class OptionValues {
 public:
  /// Throws ConfigError, with a hint to --help, for options that `known` does not have and for
  /// values that are missing or of another type. Words beside options are values of `words`, one
  /// of `known` that takes many; without it they are mistakes.
  OptionValues(const options::options_description& known, std::span<const std::string> arguments,
               const char* words = nullptr);

  /// Nothing when the option was not given. `Type` is the one that `known` says.
  template <typename Type>
  [[nodiscard]] std::optional<Type> get(const std::string& name) const {
    if (!has(name)) return std::nullopt;
    return values_[name].as<Type>();
  }
  [[nodiscard]] bool has(const std::string& name) const { return values_.count(name) > 0; }

 private:
  options::variables_map values_;
};

OptionValues::OptionValues(const options::options_description& known,
                           std::span<const std::string> arguments, const char* words) {
  try {
    const int style =
        options::command_line_style::unix_style & ~options::command_line_style::allow_guessing;
    options::positional_options_description places;
    if (words != nullptr) places.add(words, -1);
    options::store(options::command_line_parser({arguments.begin(), arguments.end()})
                       .options(known)
                       .positional(places)
                       .style(style)
                       .run(),
                   values_);
  } catch (const options::unknown_option& error) {
    const std::string name = error.get_option_name();
    throw smp::ConfigError("command line: there is no option {}{}; see `train --help`", name,
                           meant(name, known));
  } catch (const options::error& error) {
    throw smp::ConfigError("command line: {}; see `train --help`", error.what());
  }
}

constexpr std::pair<const char*, Action> kActions[] = {
    {"plan", Action::kPlan}, {"check", Action::kCheck},     {"doctor", Action::kDoctor},
    {"help", Action::kHelp}, {"version", Action::kVersion},
};

options::options_description launcher_options() {
  options::options_description result = option_list("Options");
  result.add_options()                                                                     //
      ("plan", "print what would be started, with ranks and environment; change nothing")  //
      ("json", "with --plan, --doctor or --check: one JSON object in place of text")(
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
  options::options_description result = option_list("Options of --report");
  result.add_options()                                       //
      ("report", "write the report of a job")                //
      ("output", options::value<std::string>(), "where to")  //
      ("folder", options::value<Texts>()->composing(),
       "of a job, or of its records; and suggestion.json of --suggest --write");
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

options::options_description tree_options() {
  const auto text = [](const char* name) {
    return options::value<std::string>()->value_name(name);
  };
  const auto texts = [](const char* name) {
    return options::value<Texts>()->composing()->value_name(name);
  };
  const auto number = [](const char* name) { return options::value<int>()->value_name(name); };
  options::options_description result = option_list("Options of --make-tree");
  result.add_options()                                                                  //
      ("make-tree", text("DIR"), "where; several hosts get DIR/algo-1, DIR/algo-2, …")  //
      ("hosts", number("N"), "hosts of the job (1)")                                    //
      ("cluster", "name no hosts: Slurm, Kubernetes or AWS Batch will")                 //
      ("code", text("DIR"), "folder with the script")                                   //
      ("program", text("FILE"), "the script, relative to that folder")                  //
      ("channel", texts("NAME=DIR"), "input data; may be repeated")                     //
      ("hyperparameter", texts("NAME=VALUE"), "may be repeated; JSON keeps its type")   //
      ("processes", number("N"), "MPI processes on each host; without it no MPI")       //
      ("mp-parameters", text("JSON"), "settings of the model-parallel library")         //
      ("instance-type", text("TYPE"), "e.g. ml.p4d.24xlarge (local)")                   //
      ("network-interface", text("NAME"), "interface between the hosts (eth0)")         //
      ("link", "link code and channels, so that edits count (one host)")                //
      ("copy", "copy code and channels (several hosts)")                                //
      ("replace", "remove a job tree that is there already");
  return result;
}

std::pair<std::string, std::string> split_pair(const std::string& option, const std::string& text,
                                               std::string_view form) {
  const std::size_t mark = text.find('=');
  if (mark == std::string::npos || mark == 0) {
    throw smp::ConfigError("--{} \"{}\": expected {}; see `train --help`", option, text, form);
  }
  return {text.substr(0, mark), text.substr(mark + 1)};
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
  const bool has_json = result.action == Action::kPlan || result.action == Action::kDoctor ||
                        result.action == Action::kCheck;
  if (result.json && !has_json) {
    throw smp::ConfigError(
        "command line: --json goes with --plan, --doctor or --check; see `train --help`");
  }
  return result;
}

constexpr std::string_view kUsage =
    R"(Runs a training job from its tree (/opt/ml, or SAGEMAKER_BASE_DIR).

Usage:
  train                          run the job
  train --plan [--json]          say what would be started, and stop
  train --doctor [--json]        check this machine and this job, with a remedy for each finding
  train --check [--json]         on every host: measure the ranks' speed and network, name outliers
  train --make-tree DIR …        make a mock job tree
  train --report [FOLDER…] [--output FILE]
                                 write the report of a job from its records: of this tree, or of
                                 the folders of its hosts
  train --verify [PATH…] [--record] [--json]
                                 say whether checkpoints are whole, anybody's: of this tree, or
                                 files and folders; --record writes checksums beside them
  train --suggest [--hosts N] [--instance-type TYPE] [--measured FILE…] [--json] [--svg FILE]
                  [--explain JSON] [--write]
                                 say which degrees and microbatches the script should ask for: runs
                                 it as far as its first step, as one process, and trains nothing
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
  0    the job succeeded; --plan, --make-tree, --report, --suggest: done; --doctor, --verify: nothing
       is bad
  1    the script failed, the job cannot run, a host or device failed; --doctor, --verify: something
       is bad; --suggest: nothing fits
  128+N  signal N asked for the stop and the script did not end with 0 (143: SIGTERM)
The reason is in output/failure of the tree. SM_LAUNCH_EXIT=propagate passes the script's own on; a
worker ends as the first host does.
)";

}  // namespace

opt_ml::TreeRequest parse_make_tree(std::span<const std::string> arguments) {
  const OptionValues values(tree_options(), arguments);
  opt_ml::TreeRequest request;
  request.directory = values.get<std::string>("make-tree").value_or("");
  request.hosts = values.get<int>("hosts").value_or(request.hosts);
  request.for_cluster = values.has("cluster");
  if (const auto code = values.get<std::string>("code")) request.code = *code;
  request.program = values.get<std::string>("program");
  request.processes_per_host = values.get<int>("processes");
  request.mp_parameters = values.get<std::string>("mp-parameters");
  request.instance_type = values.get<std::string>("instance-type").value_or(request.instance_type);
  request.network_interface =
      values.get<std::string>("network-interface").value_or(request.network_interface);
  if (values.has("link") && values.has("copy")) {
    throw smp::ConfigError("--link and --copy exclude each other; give one of them");
  }
  if (values.has("link") || values.has("copy")) request.link = values.has("link");
  request.replace = values.has("replace");
  for (const std::string& pair : values.get<Texts>("channel").value_or(Texts{})) {
    request.channels.push_back(split_pair("channel", pair, "NAME=DIR"));
  }
  for (const std::string& pair : values.get<Texts>("hyperparameter").value_or(Texts{})) {
    request.hyperparameters.push_back(split_pair("hyperparameter", pair, "NAME=VALUE"));
  }
  return request;
}

CommandLine parse_command_line(std::span<const std::string> arguments) {
  if (!arguments.empty() && arguments.front() == "train") {
    arguments = arguments.subspan(1);
  } else if (!arguments.empty() && !arguments.front().starts_with('-')) {
    return {.action = Action::kExecOther, .command = {arguments.begin(), arguments.end()}};
  }
  if (!arguments.empty() && arguments.front() == "--rank-exec") return parse_rank_exec(arguments);
  if (!arguments.empty() && arguments.front() == "--verify") {
    return {.action = Action::kVerify, .command = {arguments.begin() + 1, arguments.end()}};
  }
  if (!arguments.empty() && arguments.front() == "--suggest") {
    return {.action = Action::kSuggest, .command = {arguments.begin() + 1, arguments.end()}};
  }
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

void run_make_tree(const opt_ml::TreeRequest& request, std::ostream& out) {
  const std::vector<std::filesystem::path> bases = opt_ml::make_tree(request);
  out << "Made the job tree of " << bases.size() << (bases.size() == 1 ? " host:\n" : " hosts:\n");
  for (const std::filesystem::path& base : bases) out << "  " << base.string() << '\n';
  if (request.code) {
    out << (opt_ml::is_linked(request)
                ? "Its code is linked: an edit of " + request.code->string() + " counts at once.\n"
                : "Its code is a copy: after an edit make the tree again, with --replace.\n");
  }
  if (request.mp_parameters && !request.processes_per_host) {
    out << "It has mp_parameters and no --processes, so it starts one process and not several "
           "ranks.\n";
  }
  if (bases.size() > 1) {
    out << "Each is the /opt/ml of one host: mount it there in a container of that name.\n";
    return;
  }
  if (request.for_cluster) {
    out << "All hosts use it: name it by SAGEMAKER_BASE_DIR, or mount it as /opt/ml.\n";
    return;
  }
  out << "Run it with: SAGEMAKER_BASE_DIR="
      << shell_quote(std::filesystem::absolute(bases.front()).string()) << " train\n";
}

std::string nearest_command(const std::string& word) {
  for (const auto& [name, action] : kActions) {
    if (word == name) return fmt::format("did you mean `train --{}`?", name);
  }
  if (word == "suggest") return "did you mean `train --suggest`?";
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
  out << kUsage << launcher_options() << '\n' << tree_options() << kExamples;
  out << "Environment variables, all optional:\n";
  for (const smp::VariableRow& row : option_table()) {
    const std::string_view standard = row.standard.empty() ? "-" : row.standard;
    out << fmt::format("  {:<24} {:<7} {}\n", row.name, standard, row.meaning);
  }
  out << kExitStatus;
  return out.str();
}

}  // namespace entrypoint
