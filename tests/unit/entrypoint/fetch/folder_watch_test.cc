// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/fetch/folder_watch.h"

#include <algorithm>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace entrypoint::fetch {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using testing_support::TemporaryFolder;
using testing_support::write_file;

struct WatchCase {
  TemporaryFolder folder;
  fs::path out = folder.path() / "intermediate";
  std::unique_ptr<FolderWatch> watch;

  WatchCase() { fs::create_directory(out); }
  void start() { watch = std::make_unique<FolderWatch>(out); }

  /// inotify events are there when the call that made them returns: nothing to wait for.
  std::vector<std::string> collect() {
    std::vector<std::string> names;
    for (const fs::path& file : watch->collect()) {
      names.push_back(file.lexically_relative(out).string());
    }
    return names;
  }
};

TEST(FolderWatch, FilesAreFinishedWhenTheyAreClosed) {
  WatchCase job;
  job.start();

  std::ofstream open(job.out / "open");
  open << "some" << std::flush;
  EXPECT_THAT(job.collect(), IsEmpty());
  open.close();
  EXPECT_THAT(job.collect(), ElementsAre("open"));
  EXPECT_THAT(job.collect(), IsEmpty());
}

TEST(FolderWatch, EachFileComesOnceInTheOrderOfItsLastChange) {
  WatchCase job;
  job.start();

  for (const char* name : {"a", "b", "a"}) write_file(job.out / name, name);

  EXPECT_THAT(job.collect(), ElementsAre("b", "a"));
}

TEST(FolderWatch, WhatIsMovedInCountsFoldersToo) {
  WatchCase job;
  write_file(job.folder.path() / "file.tmp", "");
  write_file(job.folder.path() / "tree/d/file", "");
  job.start();

  fs::rename(job.folder.path() / "file.tmp", job.out / "file");
  fs::rename(job.folder.path() / "tree", job.out / "tree");

  EXPECT_THAT(job.collect(), ElementsAre("file", "tree/d/file"));
}

TEST(FolderWatch, NewFoldersAreWatchedWithWhatIsInThem) {
  WatchCase job;
  job.start();

  write_file(job.out / "d/e/first", "");
  EXPECT_THAT(job.collect(), ElementsAre("d/e/first"));
  write_file(job.out / "d/e/second", "");
  EXPECT_THAT(job.collect(), ElementsAre("d/e/second"));
}

TEST(FolderWatch, LinksToFilesCountAndLinksToFoldersDoNot) {
  WatchCase job;
  write_file(job.folder.path() / "elsewhere/file", "");
  job.start();

  fs::create_symlink(job.folder.path() / "elsewhere/file", job.out / "link");
  fs::create_directory_symlink(job.folder.path() / "elsewhere", job.out / "folder");
  write_file(job.folder.path() / "elsewhere/more", "");

  EXPECT_THAT(job.collect(), ::testing::Contains("link"));
  EXPECT_THAT(files_below(job.out), ElementsAre(job.out / "link"));
}

TEST(FolderWatch, WhatWasThereBeforeIsFinished) {
  WatchCase job;
  write_file(job.out / "d/old", "");

  job.start();

  EXPECT_THAT(job.collect(), ElementsAre("d/old"));
}

TEST(FolderWatch, AFolderThatIsNotThereIsAnError) {
  EXPECT_THROW(FolderWatch("/no/such/folder"), smp::HostError);
}

}  // namespace
}  // namespace entrypoint::fetch
