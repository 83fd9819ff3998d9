// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/job/ending.h"

#include <chrono>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entrypoint/process/launch_folder.h"
#include "entrypoint/process/spawn.h"
#include "smp_runtime/core/error.h"
#include "tests/unit/entrypoint/process/outlet.h"

namespace entrypoint {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

int exit_code(const ExitStatus& status, ExitPolicy policy) {
  const Supervisor processes;
  return status_of(Outcome{.status = status, .command = {"x"}}, processes, {},
                   {.policy = policy, .oom_kills_before = 0})
      .exit_code;
}

TEST(Ending, MakesOneOfEveryFailureUnlessAskedOtherwise) {
  const ExitStatus seven{.code = 7, .signal = 0};
  const ExitStatus killed{.code = 0, .signal = SIGKILL};

  EXPECT_EQ(exit_code({}, ExitPolicy::kOne), 0);
  EXPECT_EQ(exit_code(seven, ExitPolicy::kOne), 1);
  EXPECT_EQ(exit_code(killed, ExitPolicy::kOne), 1);
  EXPECT_EQ(exit_code(seven, ExitPolicy::kPropagate), 7);
  EXPECT_EQ(exit_code(killed, ExitPolicy::kPropagate), 137);
}

TEST(Ending, OfAStoppedJobDependsOnHowItsProgramTookIt) {
  Supervisor processes;
  kill(getpid(), SIGTERM);
  processes.wait(kNever);

  const auto report = [&](const ExitStatus& status) {
    return status_of(Outcome{.status = status, .command = {"x"}}, processes, {},
                     {.policy = ExitPolicy::kPropagate, .oom_kills_before = 0});
  };

  EXPECT_EQ(report({}), JobStatus{});
  EXPECT_EQ(report({.code = 3, .signal = 0}).exit_code, 143);
  EXPECT_THAT(report({.code = 3, .signal = 0}).failure_text, HasSubstr("ExitCode 3\n"));
}

TEST(Ending, OfAWorkerRepeatsTheMaster) {
  const Supervisor processes;
  const Outcome outcome{.status = {.code = 1, .signal = 0},
                        .followed = JobStatus{.exit_code = 1, .failure_text = "as said"}};

  EXPECT_EQ(status_of(outcome, processes, {}, {}),
            (JobStatus{.exit_code = 1, .failure_text = "as said"}));
}

TEST(Ending, MasksSecretsOfTheCommand) {
  const Supervisor processes;
  const Outcome outcome{.status = {.code = 1, .signal = 0},
                        .command = {"python3", "--api_key", "hunter2", "--epochs", "3"}};

  const JobStatus status = status_of(outcome, processes, {}, {.oom_kills_before = 0});

  EXPECT_THAT(status.failure_text, HasSubstr("Command \"python3 --api_key ****** --epochs 3\""));
}

TEST(Ending, MasksSecretsThatTheProgramPrinted) {
  const Supervisor processes;
  OutputRecord output;
  output.add(StreamKind::kErr, nullptr, "ValueError: bad key hunter2x for https://me:pass@host/\n");
  const Secrets secrets({{"SM_HP_API_KEY", "hunter2x"}}, {});

  const JobStatus status = status_of(Outcome{.status = {.code = 1, .signal = 0}, .command = {"sh"}},
                                     processes, output, {.secrets = secrets});

  EXPECT_THAT(status.failure_text,
              HasSubstr("\"ValueError: bad key ****** for https://me:******@host/\""));
  EXPECT_THAT(status.failure_text, Not(HasSubstr("hunter2x")));
}

TEST(Ending, SaysThatADiskIsFull) {
  const std::vector<FreeSpace> spaces = {{.folder = "/opt/ml", .bytes = 4096},
                                         {.folder = "/tmp", .bytes = 5'000'000'000}};

  EXPECT_EQ(free_space_text(spaces, kFullBelow), "/opt/ml 4.1 kB");
  EXPECT_EQ(free_space_text(spaces, UINTMAX_MAX), "/opt/ml 4.1 kB, /tmp 5.0 GB");
  const std::vector<std::filesystem::path> folders = {"/proc/self", "/proc", "/no/such/folder"};
  EXPECT_EQ(free_space(folders).size(), 1);
}

TEST(Ending, TellsTheUsersErrorsFromOurs) {
  EXPECT_EQ(status_of(smp::ConfigError("bad name")).failure_text, "bad name");
  EXPECT_EQ(status_of(smp::HostError("no route")).failure_text, "Framework Error: \nno route");
  EXPECT_EQ(status_of(std::runtime_error("?")).exit_code, 1);
}

TEST(Ending, OfAnErrorSaysThatADiskIsFull) {
  const JobStatus status = status_of(smp::HostError("no code"), {.folders = {"/proc"}});

  EXPECT_EQ(status.failure_text, "Framework Error: \nno code\nDisk full: /proc 0 bytes");
}

class Publish : public testing::Test {
 protected:
  [[nodiscard]] std::string read(const std::filesystem::path& path) const {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  LaunchFolder folder_;
  opt_ml::Layout layout_{folder_.path()};
};

TEST_F(Publish, WritesOneMarker) {
  EXPECT_EQ(publish(layout_, {}), 0);
  EXPECT_TRUE(std::filesystem::exists(layout_.success_marker()));
  EXPECT_FALSE(std::filesystem::exists(layout_.failure_marker()));
}

TEST_F(Publish, LeavesTheUsersOwnWords) {
  std::filesystem::create_directories(layout_.output());
  std::ofstream(layout_.failure_marker()) << "mine";

  EXPECT_EQ(publish(layout_, {.exit_code = 1, .failure_text = "ours"}), 1);
  EXPECT_EQ(read(layout_.failure_marker()), "mine");
}

TEST_F(Publish, FindsNoMarkerOfAnEarlierRun) {
  std::filesystem::create_directories(layout_.output());
  std::ofstream(layout_.failure_marker()) << "of yesterday";
  std::ofstream(layout_.success_marker()) << "";

  remove_old_markers(layout_);

  EXPECT_FALSE(std::filesystem::exists(layout_.failure_marker()));
  EXPECT_FALSE(std::filesystem::exists(layout_.success_marker()));
  EXPECT_EQ(publish(layout_, {.exit_code = 1, .failure_text = "of today"}), 1);
  EXPECT_EQ(read(layout_.failure_marker()), "of today");
}

TEST_F(Publish, MakesSuccessAFailureWhenItCannotBeMarked) {
  std::filesystem::create_directories(layout_.success_marker());  // a folder is in the way

  EXPECT_EQ(publish(layout_, {}), 1);
}

constexpr ExitStatus kAborted{.code = 0, .signal = SIGABRT};
constexpr ExitStatus kAbortedBelowMpirun{.code = 134, .signal = 0};

OutputRecord record_with(std::string_view line) {
  OutputRecord record;
  record.add(StreamKind::kErr, nullptr, std::string(line) + "\n");
  return record;
}

TEST(GlooAbort, IsTheAbortThatGlooCaused) {
  const OutputRecord record =
      record_with("terminate called after throwing an instance of 'gloo::EnforceNotMet'");

  EXPECT_TRUE(is_gloo_abort(kAborted, record));
  EXPECT_TRUE(is_gloo_abort(kAbortedBelowMpirun, record));
}

TEST(GlooAbort, IsNoOtherStatusWhateverWasPrinted) {
  const OutputRecord record =
      record_with("terminate called after throwing an instance of 'gloo::EnforceNotMet'");

  for (const int code : {0, 1, 2, 133, 137, 139}) {
    EXPECT_FALSE(is_gloo_abort({.code = code, .signal = 0}, record)) << code;
  }
  EXPECT_FALSE(is_gloo_abort({.code = 0, .signal = SIGKILL}, record));
}

TEST(GlooAbort, IsNoOtherAbort) {
  EXPECT_FALSE(is_gloo_abort(kAborted, OutputRecord()));
  EXPECT_FALSE(is_gloo_abort(
      kAborted, record_with("terminate called after throwing an instance of 'std::bad_alloc'")));
  EXPECT_FALSE(is_gloo_abort(kAborted, record_with("print: gloo::EnforceNotMet")));
}

}  // namespace
}  // namespace entrypoint
