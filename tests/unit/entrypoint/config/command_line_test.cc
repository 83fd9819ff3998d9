// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/config/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entrypoint/config/launch_options.h"
#include "smp_runtime/core/error.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace entrypoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using testing_support::message_of;

CommandLine parse(const std::vector<std::string>& arguments) {
  return parse_command_line(arguments);
}

std::string error_of(const std::vector<std::string>& arguments) {
  return message_of([&] { parse(arguments); });
}

TEST(CommandLine, NothingAndTrainRunTheJob) {
  EXPECT_EQ(parse({}).action, Action::kTrain);
  EXPECT_EQ(parse({"train"}).action, Action::kTrain);
  const char* const argv[] = {"/usr/bin/train", "train", "--plan"};
  EXPECT_EQ(parse_command_line(3, argv).action, Action::kPlan);
  EXPECT_EQ(parse_command_line(0, argv).action, Action::kTrain);
}

TEST(CommandLine, OptionsChooseTheAction) {
  EXPECT_EQ(parse({"--plan"}).action, Action::kPlan);
  EXPECT_FALSE(parse({"--plan"}).json);
  EXPECT_TRUE(parse({"train", "--json", "--plan"}).json);
  EXPECT_EQ(parse({"--doctor"}).action, Action::kDoctor);
  EXPECT_TRUE(parse({"--doctor", "--json"}).json);
  EXPECT_EQ(parse({"--check"}).action, Action::kCheck);
  EXPECT_EQ(parse({"-h"}).action, Action::kHelp);
  EXPECT_EQ(parse({"--version"}).action, Action::kVersion);
}

TEST(CommandLine, AnotherProgramTakesTheWholeLine) {
  const CommandLine line = parse({"bash", "-c", "echo $X", "--plan"});

  EXPECT_EQ(line.action, Action::kExecOther);
  EXPECT_THAT(line.command, ElementsAre("bash", "-c", "echo $X", "--plan"));
}

TEST(CommandLine, WordsAreAnsweredWithWhatMayBeMeant) {
  EXPECT_THAT(error_of({"--plan", "job"}), HasSubstr("SAGEMAKER_BASE_DIR=job train --plan"));
  EXPECT_EQ(nearest_command("plan"), "did you mean `train --plan`?");
  EXPECT_EQ(nearest_command("make-tree"), "did you mean `train --make-tree DIR`?");
  EXPECT_THAT(nearest_command("train.py"), HasSubstr("--program train.py"));
  EXPECT_THAT(nearest_command("train.py"), HasSubstr("`train python3 train.py`"));
  EXPECT_EQ(nearest_command("bsh"), "see `train --help`");
}

TEST(CommandLine, RankExecKeepsItsCommandUntouched) {
  const CommandLine line = parse({"--rank-exec", "--", "python3", "--", "t.py", "--help"});

  EXPECT_EQ(line.action, Action::kRankExec);
  EXPECT_THAT(line.command, ElementsAre("python3", "--", "t.py", "--help"));
  EXPECT_FALSE(line.sets_rank_variables);
  EXPECT_THAT(error_of({"--rank-exec", "python3"}), HasSubstr("-- COMMAND"));
  EXPECT_THAT(error_of({"--rank-exec", "--"}), HasSubstr("-- COMMAND"));
}

TEST(CommandLine, RankExecMayBeAskedForRankVariables) {
  const CommandLine line = parse({"--rank-exec", "--rank-variables", "--", "--rank-variables"});

  EXPECT_TRUE(line.sets_rank_variables);
  EXPECT_THAT(line.command, ElementsAre("--rank-variables"));
  EXPECT_THAT(error_of({"--rank-exec", "--rank-variables", "--"}), HasSubstr("COMMAND"));
}

TEST(CommandLine, RankExecMayTakeItsCommandFromAFile) {
  const CommandLine line = parse({"--rank-exec", "--command-file", "/a/file", "--"});

  EXPECT_EQ(line.command_file, "/a/file");
  EXPECT_THAT(line.command, ElementsAre());
  EXPECT_THAT(parse({"--rank-exec", "--command-file", "f", "--", "starter"}).command,
              ElementsAre("starter"));
  EXPECT_THAT(error_of({"--rank-exec", "--command-file"}), HasSubstr("COMMAND"));
}

TEST(CommandLine, VerifyPassesItsWordsOn) {
  const CommandLine line = parse({"--verify", "--record", "a folder"});

  EXPECT_EQ(line.action, Action::kVerify);
  EXPECT_THAT(line.command, ElementsAre("--record", "a folder"));
  EXPECT_THAT(error_of({"--plan", "--verify"}), HasSubstr("there is no option"));
}

TEST(CommandLine, MakeTreeReadsItsOptionsInAnyOrder) {
  const CommandLine line =
      parse({"train", "--hosts", "2", "--make-tree", "job", "--hyperparameter", "lr=-1e-3",
             "--hyperparameter=name=a=b", "--channel", "train=/data", "--code", "src", "--program",
             "train.py", "--processes", "4", "--mp-parameters", R"({"partitions": 2})", "--link"});

  EXPECT_EQ(line.action, Action::kMakeTree);
  EXPECT_EQ(line.tree.directory, "job");
  EXPECT_EQ(line.tree.hosts, 2);
  EXPECT_THAT(line.tree.hyperparameters, ElementsAre(Pair("lr", "-1e-3"), Pair("name", "a=b")));
  EXPECT_THAT(line.tree.channels, ElementsAre(Pair("train", "/data")));
  EXPECT_EQ(line.tree.processes_per_host, 4);
  EXPECT_EQ(line.tree.mp_parameters, R"({"partitions": 2})");
  EXPECT_EQ(line.tree.link, true);
  EXPECT_FALSE(line.tree.replace);
}

TEST(CommandLine, LinksAndCopiesExcludeEachOther) {
  EXPECT_EQ(parse({"--make-tree", "job"}).tree.link, std::nullopt);
  EXPECT_EQ(parse({"--make-tree", "job", "--copy"}).tree.link, false);
  EXPECT_THAT(error_of({"--make-tree", "job", "--copy", "--link"}), HasSubstr("--link and --copy"));
}

TEST(CommandLine, MistakesNameTheOption) {
  EXPECT_THAT(error_of({"--doctr"}), HasSubstr("no option --doctr (did you mean --doctor?)"));
  EXPECT_THAT(error_of({"--make-tree=x", "--proceses", "2"}), HasSubstr("--processes?"));
  EXPECT_THAT(error_of({"--plam"}), HasSubstr("--plam"));
  EXPECT_THAT(error_of({"--pla"}), HasSubstr("--pla"));  // no guessing
  EXPECT_THAT(error_of({"--json"}), HasSubstr("--json goes with --plan, --doctor or"));
  EXPECT_THAT(error_of({"--plan", "--doctor"}), HasSubstr("exclude each other"));
  EXPECT_THAT(error_of({"train", "bash"}), HasSubstr("\"bash\" is no option"));
  EXPECT_THAT(error_of({"--make-tree"}), HasSubstr("--make-tree"));
  EXPECT_THAT(error_of({"--make-tree", "d", "--hosts", "two"}), HasSubstr("two"));
  EXPECT_THAT(error_of({"--make-tree", "d", "--channel", "train"}), HasSubstr("NAME=DIR"));
  EXPECT_THAT(error_of({"--make-tree", "d", "--plan"}), HasSubstr("--plan"));
}

TEST(CommandLine, HelpListsOptionsAndEveryVariable) {
  const std::string help = help_text();

  EXPECT_THAT(help, HasSubstr("--make-tree DIR"));
  EXPECT_THAT(help, HasSubstr("SAGEMAKER_BASE_DIR=$PWD/job train --plan"));
  EXPECT_THAT(help, HasSubstr("Exit status:"));
  for (const smp::VariableRow& row : option_table())
    EXPECT_THAT(help, HasSubstr(std::string(row.name)));
  EXPECT_TRUE(help.ends_with('\n'));
}

TEST(LaunchOptions, DefaultsAreThoseOfTheTable) {
  const LaunchOptions options = read_options({{"SM_LAUNCH_EFA", ""}});

  EXPECT_EQ(options.worker_timeout, std::chrono::seconds(900));
  EXPECT_EQ(options.stop_after, std::chrono::seconds(110));
  EXPECT_EQ(options.arguments, ArgumentStyle::kPython);
  EXPECT_EQ(options.efa, EfaSwitch::kAuto);
  EXPECT_FALSE(options.dry_run);
}

TEST(LaunchOptions, ValuesAreChecked) {
  EXPECT_TRUE(read_options({{"SM_LAUNCH_DRY_RUN", "yes"}}).dry_run);
  EXPECT_EQ(read_options({{"SM_LAUNCH_ARGS", "json"}}).arguments, ArgumentStyle::kJson);
  EXPECT_THAT(message_of([] {
                read_options({{"SM_LAUNCH_EFA", "maybe"}});
              }),
              HasSubstr("SM_LAUNCH_EFA is \"maybe\"; expected auto, on or off"));
  EXPECT_THAT(message_of([] {
                read_options({{"SM_LAUNCH_MERGE", "of"}});
              }),
              HasSubstr("SM_LAUNCH_MERGE is \"of\"; expected 1, on, true or yes, or 0, off"));
  EXPECT_THROW(read_options({{"SM_LAUNCH_STOP_SECONDS", "-1"}}), smp::ConfigError);
  EXPECT_THROW(read_options({{"SM_LAUNCH_STOP_SECONDS", "1.5"}}), smp::ConfigError);
  EXPECT_THROW(read_options({{"SM_LAUNCH_MERGE", "2"}}), smp::ConfigError);
}

TEST(LaunchOptions, ThatAreNotKnownNameTheNearest) {
  EXPECT_THAT(describe_unknown_options(
                  {{"SM_LAUNCH_EFAA", "on"}, {"SM_LAUNCH_MERGE", "1"}, {"SMP_X", "1"}}),
              testing::ElementsAre("SM_LAUNCH_EFAA is not known; did you mean SM_LAUNCH_EFA?"));
  EXPECT_THAT(
      describe_unknown_options({{"SMP_EXTRA_CA_FILES", "x"}, {"SMP_EXTRA_CA_FILE", "x"}}),
      testing::ElementsAre("SMP_EXTRA_CA_FILES is not known; did you mean SMP_EXTRA_CA_FILE?"));
}

}  // namespace
}  // namespace entrypoint
