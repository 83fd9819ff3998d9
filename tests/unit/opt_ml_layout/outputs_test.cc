// SPDX-License-Identifier: Apache-2.0
#include "opt_ml_layout/outputs.h"

#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "opt_ml_layout/data_channels.h"
#include "smp_runtime/core/error.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace opt_ml {
namespace {

using testing_support::message_of;
using testing_support::read_file;
using testing_support::TemporaryFolder;
using testing_support::write_file;

TEST(Outputs, MarkersComeWithTheirFolder) {
  const TemporaryFolder folder;
  const Layout layout(folder.path() / "new");

  write_success(layout);
  write_success(layout);

  EXPECT_EQ(read_file(layout.success_marker()), "");
  EXPECT_TRUE(write_failure(layout, "first"));
  EXPECT_FALSE(write_failure(layout, "second"));
  EXPECT_EQ(read_file(layout.failure_marker()), "first");
}

TEST(Outputs, AFailureWrittenByTheUserStays) {
  const TemporaryFolder folder;
  const Layout layout(folder.path());
  write_file(layout.failure_marker(), "");

  EXPECT_FALSE(write_failure(layout, "ours"));
  EXPECT_EQ(read_file(layout.failure_marker()), "");
}

TEST(Outputs, NoLinkThatWaitsForADraftIsFollowed) {
  const TemporaryFolder folder;
  const Layout layout(folder.path());
  create_job_folders(layout);
  write_file(folder.path() / "victim", "mine");
  for (const char* name : {".failure.", ".trial."}) {
    std::filesystem::create_symlink(folder.path() / "victim",
                                    layout.output() / (name + std::to_string(::getpid())));
  }

  try_job_folders(layout, layout.checkpoints());
  EXPECT_TRUE(write_failure(layout, "ours"));

  EXPECT_EQ(read_file(folder.path() / "victim"), "mine");
  EXPECT_EQ(read_file(layout.failure_marker()), "ours");
}

TEST(Outputs, OneOfManyProcessesWinsAndNoDraftStays) {
  const TemporaryFolder folder;
  const Layout layout(folder.path());
  std::vector<pid_t> writers;
  for (int i = 0; i < 8; ++i) {
    const pid_t child = ::fork();
    if (child == 0)
      ::_exit(write_failure(layout, std::string(100'000, static_cast<char>('a' + i))));
    writers.push_back(child);
  }
  int winners = 0;
  for (const pid_t writer : writers) {
    int status = 0;
    ASSERT_EQ(::waitpid(writer, &status, 0), writer);
    winners += WEXITSTATUS(status);
  }

  EXPECT_EQ(winners, 1);
  const std::string text = read_file(layout.failure_marker());
  EXPECT_EQ(text, std::string(100'000, text.at(0)));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(layout.output()), {}), 1);
}

TEST(Outputs, BytesThatAreNoTextAreReplaced) {
  const TemporaryFolder folder;
  const Layout layout(folder.path());

  write_failure(layout, "ok \xFF\xD0\xB6");

  EXPECT_EQ(read_file(layout.failure_marker()), "ok \xEF\xBF\xBD\xD0\xB6");
}

TEST(Outputs, AFolderThatCannotBeMadeIsNamed) {
  const TemporaryFolder folder;
  write_file(folder.path() / "output", "a file where a folder should be");

  EXPECT_NE(message_of([&] { write_failure(Layout(folder.path()), "x"); }).find("output"),
            std::string::npos);
}

TEST(Outputs, FoldersThatTheJobMustWriteAreTriedAndLeftAsTheyWere) {
  const TemporaryFolder folder;
  const Layout layout(folder.path());
  create_job_folders(layout);

  try_job_folders(layout, layout.checkpoints());

  EXPECT_TRUE(std::filesystem::is_empty(layout.model()));
  EXPECT_FALSE(std::filesystem::exists(layout.checkpoints()));
  for (const std::filesystem::path& wrong : {layout.checkpoints(), layout.output_data()}) {
    std::filesystem::remove(wrong);
    write_file(wrong, "no folder");
    const std::string error = message_of([&] { try_job_folders(layout, layout.checkpoints()); });
    EXPECT_NE(error.find(wrong.string() + ": the job has to write there"), error.npos) << error;
    std::filesystem::remove(wrong);
    std::filesystem::create_directory(wrong);
  }
}

TEST(Outputs, PrefixesEndBetweenCharacters) {
  EXPECT_EQ(utf8_prefix("aж😀", 8), "aж😀");
  EXPECT_EQ(utf8_prefix("aж😀", 6), "aж");
  EXPECT_EQ(utf8_prefix("aж😀", 3), "aж");
  EXPECT_EQ(utf8_prefix("aж😀", 2), "a");
  EXPECT_EQ(utf8_prefix("ж", 1), "");
}

TEST(Outputs, JobFoldersAreMadeOnce) {
  const TemporaryFolder folder;
  const Layout layout(folder.path());

  create_job_folders(layout);
  create_job_folders(layout);

  EXPECT_TRUE(std::filesystem::is_directory(layout.model()));
  EXPECT_TRUE(std::filesystem::is_directory(layout.code()));
  EXPECT_TRUE(std::filesystem::is_directory(layout.output_data()));
}

TEST(DataChannels, NamesBecomeFolders) {
  const TemporaryFolder folder;
  const Layout layout(folder.path());
  EXPECT_TRUE(read_data_channels(layout).channels.empty());
  write_file(layout.input_data_config(),
             R"({"val-b": {}, "train": {"TrainingInputMode": "File"}})");

  const DataChannels channels = read_data_channels(layout);

  EXPECT_EQ(channels.sorted_names(), (std::vector<std::string>{"train", "val-b"}));
  EXPECT_EQ(channels.channels[0].folder, folder.path() / "input/data/val-b");
}

TEST(DataChannels, ANameThatLeavesTheFolderIsRefused) {
  const TemporaryFolder folder;
  const Layout layout(folder.path());
  write_file(layout.input_data_config(), R"({"../x": {}})");

  EXPECT_THROW(read_data_channels(layout), smp::ConfigError);
}

}  // namespace
}  // namespace opt_ml
