// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/ssh/job_status.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entrypoint/process/launch_folder.h"

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
  std::filesystem::create_symlink(path, folder.file("link"));

  EXPECT_EQ(read_job_status(path), (JobStatus{.exit_code = 7, .failure_text = "why"}));
  EXPECT_EQ(read_job_status(folder.file("link")), std::nullopt);
  EXPECT_EQ(read_job_status(folder.file("absent")), std::nullopt);
}

}  // namespace
}  // namespace entrypoint
