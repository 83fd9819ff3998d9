// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/ssh/job_status.h"

#include <filesystem>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "entrypoint/process/launch_folder.h"
#include "entrypoint/process/spawn.h"
#include "smp_runtime/core/file.h"

namespace entrypoint {
namespace {

TEST(JobStatus, SurvivesTheFile) {
  const JobStatus status{.exit_code = 143, .failure_text = "ExecuteUserScriptError:\nExitCode 1\n"};

  EXPECT_EQ(parse_job_status(job_status_text(status)), status);
  EXPECT_EQ(parse_job_status(job_status_text({})), JobStatus{});
}

TEST(JobStatus, TakesAReferenceLaunchersEmptyFileForSuccess) {
  EXPECT_EQ(parse_job_status("").exit_code, 0);
}

TEST(JobStatus, TakesNonsenseForAFailure) {
  const JobStatus status = parse_job_status("all is well\n");

  EXPECT_EQ(status.exit_code, 1);
  EXPECT_THAT(status.failure_text, testing::HasSubstr("\"all is well\""));
}

TEST(JobStatus, IsCutToWhatAPipeTakes) {
  EXPECT_LE(job_status_text({.exit_code = 1, .failure_text = std::string(1 << 20, 'x')}).size(),
            32 * 1024);
}

TEST(JobStatus, IsReadFromOurOwnRegularFileOnly) {
  const LaunchFolder folder;
  const auto path = folder.write("done", "7\nwhy");
  const auto second = folder.write("second", "0");
  std::filesystem::create_symlink(path, folder.file("link"));
  std::filesystem::create_hard_link(second, folder.file("hard link"));

  EXPECT_EQ(read_job_status(path), (JobStatus{.exit_code = 7, .failure_text = "why"}));
  EXPECT_EQ(read_job_status(folder.file("link")), std::nullopt);
  EXPECT_EQ(read_job_status(folder.file("hard link")), std::nullopt);
  EXPECT_EQ(read_job_status(folder.file("absent")), std::nullopt);
}

constexpr std::chrono::seconds kLimit{30};

/// What a host's shell does with `input`, where it has a launch folder or none.
Completed take(const std::string& master, const std::string& input, const char* folder = nullptr) {
  std::vector<std::string> environment{"PATH=/usr/bin:/bin"};
  if (folder != nullptr) environment.push_back(fmt::format("SMP_LAUNCH_FOLDER={}", folder));
  return run_command({.argv = {"/bin/sh", "-c", take_status_command(master, "7")},
                      .environment = std::move(environment)},
                     kLimit, input);
}

TEST(JobStatus, IsTakenIntoTheLaunchFolder) {
  const LaunchFolder folder;
  const std::string master = fmt::format("folder-test-{}", getpid());

  EXPECT_TRUE(take(master, "7\nwhy", folder.path().c_str()).status.ok());

  EXPECT_EQ(read_job_status(folder.file(kStatusFile)),
            (JobStatus{.exit_code = 7, .failure_text = "why"}));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  EXPECT_FALSE(std::filesystem::exists(shared_status_path(master, "7")));
}

TEST(JobStatus, InTheSharedFolderFollowsNoLinkThatIsInTheWay) {
  const LaunchFolder folder;
  const auto victim = folder.write("victim", "mine");
  const std::string master = fmt::format("link-test-{}", getpid());
  const std::filesystem::path shared = shared_status_path(master, "7");
  for (const char* ending : {"", ".part"}) {
    std::filesystem::create_symlink(victim, shared.string() + ending);
  }

  EXPECT_TRUE(take(master, "0\n").status.ok());

  EXPECT_EQ(smp::read_text(victim), "mine");
  EXPECT_EQ(read_job_status(shared), JobStatus{});
  for (const char* ending : {"", ".part"}) std::filesystem::remove(shared.string() + ending);
}

TEST(JobStatus, InTheSharedFolderDoesNotGoIntoAFolderThatIsInTheWay) {
  const std::string master = fmt::format("way-test-{}", getpid());
  const std::filesystem::path shared = shared_status_path(master, "7");
  std::filesystem::create_directory(shared);

  EXPECT_FALSE(take(master, "0\n").status.ok());

  EXPECT_TRUE(std::filesystem::is_empty(shared));
  EXPECT_TRUE(std::filesystem::remove(shared));
  for (const auto& entry : std::filesystem::directory_iterator("/tmp")) {
    EXPECT_FALSE(entry.path().string().starts_with(shared.string())) << entry.path();
  }
}

}  // namespace
}  // namespace entrypoint
