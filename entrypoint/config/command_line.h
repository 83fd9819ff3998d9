// SPDX-License-Identifier: Apache-2.0
// The command line of `train`. As the image's ENTRYPOINT it is also called with somebody else's
// command, which it then runs.
#pragma once

#include <filesystem>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "opt_ml_layout/tree_maker.h"

namespace entrypoint {

enum class Action {
  kTrain,     ///< run the job of the tree
  kPlan,      ///< print what kTrain would do
  kCheck,     ///< run the check before the start, and nothing after it
  kDoctor,    ///< check the machine and say what is wrong with it
  kRankExec,  ///< be the parent of one rank: `--rank-exec [OPTION…] -- CMD…`
  kMakeTree,  ///< write a mock job tree
  kReport,    ///< write the report of a job
  kVerify,    ///< say whether checkpoints are whole
  kSuggest,   ///< say which degrees the job's script should ask for
  kHelp,
  kVersion,
  kExecOther,  ///< the first argument is another program: execute `command`
};

struct CommandLine {
  Action action = Action::kTrain;
  bool json = false;                           ///< kPlan, kDoctor, kCheck: JSON in place of text
  std::vector<std::string> command;            ///< kRankExec, kExecOther: what to execute;
                                               ///< kVerify, kSuggest: arguments of the module
  bool sets_rank_variables = false;            ///< kRankExec: RANK and its like for the command
  std::filesystem::path command_file;          ///< kRankExec: as RankRequest has it
  opt_ml::TreeRequest tree;                    ///< kMakeTree
  std::vector<std::filesystem::path> folders;  ///< kReport: of jobs or records; empty: of the tree
  std::filesystem::path page;                  ///< kReport: where to; empty: beside the records
};

/// Reads the arguments after the program's own name. A first argument `train` is dropped, so that
/// `train train` (how the service calls an image) is `train`; a first argument that neither is
/// `train` nor starts with a dash makes the whole line kExecOther. Throws ConfigError for options
/// that are unknown, incomplete or contradict each other, with a hint to --help.
CommandLine parse_command_line(std::span<const std::string> arguments);
CommandLine parse_command_line(int argc, const char* const* argv);

/// The options of --make-tree, `--make-tree DIR` among them, in any order. Throws ConfigError.
opt_ml::TreeRequest parse_make_tree(std::span<const std::string> arguments);

/// Makes the tree and prints where it is and how to run a job on it.
void run_make_tree(const opt_ml::TreeRequest& request, std::ostream& out);

/// Advice for somebody who wrote `train WORD`: an option without its dashes, a script, or else
/// --help.
std::string nearest_command(const std::string& word);

/// The text of --help: usage, options, examples and the table of variables. Ends in a newline.
std::string help_text();

}  // namespace entrypoint
