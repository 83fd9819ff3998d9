// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/entry_point.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entrypoint/plan/planned_command.h"
#include "smp_runtime/core/error.h"
#include "tests/unit/entrypoint/job_builder.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace entrypoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing_support::message_of;

constexpr const char* kPython = "/usr/bin/python3";

EntryPoint resolve(const JobConfig& job) { return resolve_entry_point(job, kPython); }
std::string entry_point_error(const JobConfig& job) {
  return message_of([&] { resolve(job); });
}

CodeFolder folder_with(std::vector<std::string> entries, bool in_package = true) {
  return {.entries = std::move(entries),
          .entry_point_exists = true,
          .entry_point_in_package = in_package};
}

TEST(EntryPoint, APythonFileIsAProgram) {
  const EntryPoint entry = resolve(a_job());

  EXPECT_EQ(entry.kind, EntryPointKind::kProgram);
  EXPECT_THAT(entry.install, IsEmpty());
  EXPECT_THAT(process_command(entry, kPython, {"--a", "b c"}),
              ElementsAre(kPython, "--", "train.py", "--a", "b c"));
  EXPECT_THAT(rank_command(entry, kPython, true, {"-k", ""}),
              ElementsAre(kPython, "-m", "mpi4py", "train.py", "-k", ""));
  EXPECT_THAT(rank_command(entry, kPython, false, {}), ElementsAre(kPython, "train.py"));
}

TEST(EntryPoint, RequirementsAreInstalledBefore) {
  const EntryPoint entry =
      resolve(a_job().with_code(folder_with({"requirements.txt", "train.py"})));

  EXPECT_THAT(entry.install,
              ElementsAre(ElementsAre(kPython, "-m", "pip", "install", "-r", "requirements.txt")));
}

TEST(EntryPoint, RequirementsBesideANestedScriptAreNamed) {
  CodeFolder code = folder_with({"training"}, false);
  code.nested_requirements = "training/requirements.txt";

  const EntryPoint entry =
      resolve(a_job().with("sagemaker_program", "training/train.py").with_code(code));

  EXPECT_THAT(entry.install, IsEmpty());
  EXPECT_THAT(entry.notes, ElementsAre(HasSubstr("training/requirements.txt is not installed")));
}

TEST(EntryPoint, ANotebookIsRefused) {
  for (const std::vector<std::string>& entries :
       {std::vector<std::string>{"train.ipynb"}, {"setup.py", "train.ipynb"}}) {
    EXPECT_THAT(
        entry_point_error(
            a_job().with("sagemaker_program", "train.ipynb").with_code(folder_with(entries))),
        HasSubstr("is a notebook, which no interpreter runs as it is; write it as a script "
                  "(jupyter nbconvert --to script train.ipynb) and set sagemaker_program "
                  "to train.py"));
  }
}

TEST(EntryPoint, AFileThatOnlyAShellWouldReadIsNamed) {
  const auto warnings_of = [](const std::string& name, bool names_interpreter) {
    CodeFolder code = folder_with({name});
    code.program = {
        .path = "/opt/ml/code/" + name, .is_file = true, .names_interpreter = names_interpreter};
    return resolve(a_job().with("sagemaker_program", name).with_code(code)).warnings;
  };

  for (const char* name : {"train.R", "train.pl", "train"}) {
    EXPECT_THAT(warnings_of(name, false),
                ElementsAre(HasSubstr("\": no first line #! names its interpreter, so /bin/sh runs "
                                      "it as a shell script")))
        << name;
    EXPECT_THAT(warnings_of(name, true), IsEmpty()) << name;
  }
  EXPECT_THAT(warnings_of("train.sh", false), IsEmpty());
}

TEST(EntryPoint, SetupPyMakesAPackage) {
  const EntryPoint entry =
      resolve(a_job().with_code(folder_with({"requirements.txt", "setup.py", "train.py"})));

  EXPECT_EQ(entry.kind, EntryPointKind::kPackage);
  EXPECT_THAT(entry.install, ElementsAre(ElementsAre(kPython, "-m", "pip", "install", ".", "-r",
                                                     "requirements.txt")));
  EXPECT_THAT(process_command(entry, kPython, {}), ElementsAre(kPython, "-m", "train"));
  EXPECT_THAT(rank_command(entry, kPython, true, {}),
              ElementsAre(kPython, "-m", "mpi4py", "-m", "train"));
}

TEST(EntryPoint, APackagesNestedFileBecomesADottedModuleOrAProgram) {
  const JobBuilder job = a_job().with("sagemaker_program", "src/train.py");

  EXPECT_EQ(resolve(JobBuilder(job).with_code(folder_with({"setup.py", "src"}))).module,
            "src.train");
  EXPECT_EQ(resolve(JobBuilder(job).with_code(folder_with({"setup.py", "src"}, false))).kind,
            EntryPointKind::kProgram);
}

TEST(EntryPoint, AModuleIsNamedWithItsSwitch) {
  const EntryPoint entry = resolve(a_job()
                                       .with("sagemaker_program", "-m recipes.train")
                                       .with_code(CodeFolder{.entries = {"requirements.txt"}}));

  EXPECT_EQ(entry.kind, EntryPointKind::kModule);
  EXPECT_THAT(entry.install,
              ElementsAre(ElementsAre(kPython, "-m", "pip", "install", "-r", "requirements.txt")));
  EXPECT_THAT(process_command(entry, kPython, {"--a", "1"}),
              ElementsAre(kPython, "-m", "recipes.train", "--a", "1"));
  EXPECT_THAT(rank_command(entry, kPython, true, {"--a", "1"}),
              ElementsAre(kPython, "-m", "mpi4py", "-m", "recipes.train", "--a", "1"));
  EXPECT_THAT(resolve(a_job()
                          .with("sagemaker_program", "-m recipes.train")
                          .with_code(CodeFolder{.entries = {"setup.py"}}))
                  .install,
              ElementsAre(ElementsAre(kPython, "-m", "pip", "install", ".")));
}

TEST(EntryPoint, NamesOfModulesAreChecked) {
  for (const char* name : {"-m a", "-m _a.b_1.c"}) {
    EXPECT_EQ(entry_point_error(a_job().with_entry_point(name)), "") << name;
  }
  for (const char* name :
       {"-m a.py b", "-m .a", "-m a.", "-m a..b", "-m 1a", "-m a/b", "-m -c", "-m  a", "-m a;b"}) {
    EXPECT_THAT(entry_point_error(a_job().with_entry_point(name)),
                HasSubstr("is no name of a Python module"))
        << name;
  }
  EXPECT_THAT(entry_point_error(a_job().with_entry_point("-m ")), HasSubstr("sagemaker_program"));
}

TEST(EntryPoint, ShellScriptsAreCommandsEvenInPackages) {
  const EntryPoint entry = resolve(
      a_job().with("sagemaker_program", "run.sh").with_code(folder_with({"run.sh", "setup.py"})));

  EXPECT_EQ(entry.kind, EntryPointKind::kCommand);
  EXPECT_EQ(entry.make_executable, "/opt/ml/code/run.sh");
  EXPECT_THAT(process_command(entry, kPython, {"--a", "b $c", ""}),
              ElementsAre("/bin/sh", "-c", "./run.sh --a 'b $c' ''"));
  EXPECT_THAT(process_command(entry, kPython, {}), ElementsAre("/bin/sh", "-c", "./run.sh "));
}

TEST(EntryPoint, CommandsDoNotInstallRequirementsAndSaySo) {
  const EntryPoint entry = resolve(a_job()
                                       .with("sagemaker_program", "binary")
                                       .with_code(folder_with({"binary", "requirements.txt"})));

  EXPECT_THAT(entry.install, IsEmpty());
  EXPECT_THAT(entry.notes, ElementsAre(HasSubstr("requirements.txt is not installed")));
}

TEST(EntryPoint, CommandsNeedNoPython) {
  EXPECT_NO_THROW(resolve_entry_point(a_job().with_entry_point("run.sh"), ""));
  EXPECT_THAT(message_of([] { resolve_entry_point(a_job(), ""); }), HasSubstr("SM_LAUNCH_PYTHON"));
}

TEST(EntryPoint, NamesAreChecked) {
  for (const char* name : {"train.py", "src/train.py", "_x.sh", ".hidden", "a+b-c", "1.py"}) {
    EXPECT_EQ(entry_point_error(a_job().with_entry_point(name)), "") << name;
  }
  for (const char* name : {"../x", "-x", "a b.py", "a/../b.py", "/etc/passwd", "a//b", "a/",
                           "./a.py", "train.py\n", "a;b.sh", "~/x", "ж.py", "+a"}) {
    EXPECT_THAT(entry_point_error(a_job().with_entry_point(name)), HasSubstr("sagemaker_program"))
        << name;
  }
  EXPECT_THAT(entry_point_error(a_job().with_entry_point("a b;c.py")),
              HasSubstr("the characters \" ;\""));
}

TEST(EntryPoint, AMissingOneIsNamedWithWhatIsThere) {
  EXPECT_THAT(entry_point_error(a_job().with_code({.entries = {"main.py", "util.py"}})),
              HasSubstr("\"train.py\": no such file in /opt/ml/code; there are: main.py, util.py"));
  EXPECT_THAT(entry_point_error(a_job()
                                    .with("sagemaker_submit_directory", "s3://b/k")
                                    .with_code({.entries = {"other.py"}})),
              HasSubstr("s3://b/k is not fetched over code that is there"));
  EXPECT_THAT(entry_point_error(a_job()
                                    .with("sagemaker_submit_directory", "s3://b/k")
                                    .with_code({.entries = {"other.py"}, .fetched = true})),
              HasSubstr("there are: other.py; correct sagemaker_program"));
  EXPECT_THAT(entry_point_error(a_job().with("sagemaker_program", "")),
              HasSubstr("no entry point"));
}

TEST(EntryPoint, IsTakenByItsNameWhileItsCodeIsNotHere) {
  const JobBuilder job = a_job().with("sagemaker_submit_directory", "s3://b/k").with_code({});

  EXPECT_EQ(resolve(job).kind, EntryPointKind::kProgram);
  EXPECT_THAT(resolve(job).install, IsEmpty());
  EXPECT_EQ(resolve(JobBuilder(job).with("sagemaker_program", "run.sh")).kind,
            EntryPointKind::kCommand);
  EXPECT_THAT(entry_point_error(JobBuilder(job).with("sagemaker_program", "../x")),
              HasSubstr("not allowed"));
}

CodeFolder folder_with_program(const ProgramFile& program) {
  CodeFolder code = folder_with({"trainer", "requirements.txt", "setup.py"});
  code.entry_point_exists = !program.in_image;
  code.program = program;
  return code;
}

ProgramFile a_binary(const std::string& path) {
  return {.path = path, .is_file = true, .is_binary = true, .is_executable = true};
}

ProgramFile of_image(const std::string& path) {
  ProgramFile program = a_binary(path);
  program.in_image = true;
  return program;
}

JobBuilder a_job_of(const std::string& name, const ProgramFile& program) {
  return a_job().with("sagemaker_program", name).with_code(folder_with_program(program));
}

TEST(EntryPoint, ACompiledFileIsExecutedWithoutAShell) {
  const EntryPoint entry = resolve(a_job_of("trainer", a_binary("/opt/ml/code/trainer")));

  EXPECT_EQ(entry.kind, EntryPointKind::kExecutable);
  EXPECT_EQ(entry.make_executable, "/opt/ml/code/trainer");
  EXPECT_THAT(entry.install, IsEmpty());
  EXPECT_THAT(entry.notes, ElementsAre(HasSubstr("requirements.txt is not installed")));
  EXPECT_THAT(process_command(entry, "", {"--a", "b $c", ""}),
              ElementsAre("./trainer", "--a", "b $c", ""));
  EXPECT_THAT(rank_command(entry, "", true, {"--a", "1"}), ElementsAre("./trainer", "--a", "1"));
}

TEST(EntryPoint, AProgramOfTheImageIsNamedByItsPathOrFoundOnPath) {
  CodeFolder code{.program = of_image("/usr/local/bin/trainer")};
  const EntryPoint named = resolve(a_job_of("/opt/trainer", of_image("/opt/trainer")));
  const EntryPoint found = resolve(a_job().with("sagemaker_program", "trainer").with_code(code));

  for (const EntryPoint& entry : {named, found}) {
    EXPECT_EQ(entry.kind, EntryPointKind::kExecutable);
    EXPECT_TRUE(entry.make_executable.empty()) << "the image is not ours to change";
  }
  EXPECT_THAT(rank_command(named, "", false, {"-k", "v"}), ElementsAre("/opt/trainer", "-k", "v"));
  EXPECT_THAT(process_command(found, "", {}), ElementsAre("/usr/local/bin/trainer"));
  EXPECT_THAT(found.notes, ElementsAre(HasSubstr("is of the image: /usr/local/bin/trainer")));
}

TEST(EntryPoint, CodeThatIsNotHereYetComesBeforeTheImage) {
  const JobBuilder job = a_job()
                             .with("sagemaker_program", "trainer")
                             .with("sagemaker_submit_directory", "s3://b/k")
                             .with_code({.program = of_image("/usr/local/bin/trainer")});

  EXPECT_EQ(resolve(job).kind, EntryPointKind::kCommand);
}

TEST(EntryPoint, WhatCannotBeExecutedIsNamed) {
  ProgramFile folder = of_image("/opt/trainer");
  folder.is_file = false;
  ProgramFile forbidden = of_image("/opt/trainer");
  forbidden.is_executable = false;
  ProgramFile launcher = of_image("/opt/trainer");
  launcher.is_launcher = true;
  ProgramFile foreign = a_binary("/opt/ml/code/trainer");
  foreign.other_machine = "AArch64";

  const auto error = [](const char* name, const ProgramFile& program) {
    return entry_point_error(a_job_of(name, program));
  };
  EXPECT_THAT(error("/opt/trainer", folder), HasSubstr("/opt/trainer is a folder"));
  EXPECT_THAT(error("/opt/trainer", forbidden), HasSubstr("RUN chmod +x /opt/trainer"));
  EXPECT_THAT(error("/opt/trainer", launcher), HasSubstr("is this launcher"));
  EXPECT_THAT(error("trainer", foreign), HasSubstr("was built for AArch64"));
  ProgramFile windows = of_image("/opt/trainer");
  windows.first_line_fault = "its first line ends in a carriage return";
  EXPECT_THAT(error("/opt/trainer", windows), HasSubstr("carriage return"));
  EXPECT_THAT(error("train.sh", windows), HasSubstr("carriage return"));
  CodeFolder holds_folder{.entries = {"train"}};
  holds_folder.program = {.path = "/opt/ml/code/train"};
  EXPECT_THAT(entry_point_error(a_job().with("sagemaker_program", "train").with_code(holds_folder)),
              HasSubstr("/opt/ml/code/train is a folder"));
  EXPECT_THAT(error("/opt/trainer", {}), HasSubstr("no such file in the image"));
  EXPECT_THAT(
      entry_point_error(
          a_job().with("sagemaker_program", "trainer").with_code({.entries = {"notes.txt"}})),
      HasSubstr("no such file in /opt/ml/code, and no such program on PATH; there are"));
}

TEST(EntryPoint, ALinkedProgramIsRefusedOnlyWhereItWouldBeChanged) {
  CodeFolder code = folder_with_program(a_binary("/opt/ml/code/trainer"));
  code.entry_point_escapes = true;
  const JobBuilder job = a_job().with("sagemaker_program", "trainer");

  EXPECT_EQ(entry_point_error(JobBuilder(job).with_code(code)), "");
  code.program.is_executable = false;
  EXPECT_THAT(entry_point_error(JobBuilder(job).with_code(code)), HasSubstr("outside"));
}

TEST(EntryPoint, ACommandOutsideTheFolderIsRefused) {
  CodeFolder code = folder_with({"run.sh"});
  code.entry_point_escapes = true;

  EXPECT_THAT(entry_point_error(a_job().with("sagemaker_program", "run.sh").with_code(code)),
              HasSubstr("outside /opt/ml/code"));
}

}  // namespace
}  // namespace entrypoint
