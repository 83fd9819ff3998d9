// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/staging.h"

#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/checkpoint/atomic_file.h"
#include "smp_runtime/core/error.h"
#include "tests/unit/checkpoint/scratch_folder.h"

namespace smp::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::ThrowsMessage;

namespace fs = std::filesystem;

TEST(Staging, IsMadeByOneOfThoseWhoSeeIt) {
  const ScratchFolder folder;
  const fs::path root = folder.path() / "deep" / "root";

  EXPECT_TRUE(open_staging(root, "step_1_partial", "token"));
  EXPECT_FALSE(open_staging(root, "step_1_partial", "token"));
  EXPECT_TRUE(fs::is_directory(staging_path(root, "step_1_partial", "token")));
}

TEST(Staging, BecomesAFolderInOneStep) {
  const ScratchFolder folder;
  open_staging(folder.path(), "a_partial", "t");
  folder.put(".a_partial.t.staging/model", "new");

  publish_folder(folder.path(), "a_partial", "t");

  EXPECT_THAT(folder.files(), ElementsAre(Pair("a_partial/model", "new")));
}

TEST(Staging, TakesThePlaceOfAnOlderFolder) {
  const ScratchFolder folder;
  folder.put("a_partial/model", "old");
  folder.put("a_partial/only_old", "old");
  open_staging(folder.path(), "a_partial", "t");
  folder.put(".a_partial.t.staging/model", "new");

  publish_folder(folder.path(), "a_partial", "t");

  EXPECT_THAT(folder.files(), ElementsAre(Pair("a_partial/model", "new")));
  EXPECT_FALSE(fs::exists(folder.path() / ".a_partial.t.staging"));
}

TEST(Staging, BecomesSingleFiles) {
  const ScratchFolder folder;
  folder.put("model", "old");
  folder.put("other", "kept");
  open_staging(folder.path(), "model", "t");
  folder.put(".model.t.staging/model", "new");
  folder.put(".model.t.staging/user_content_model", "user");

  publish_files(folder.path(), "model", "t");

  EXPECT_THAT(folder.files(), ElementsAre(Pair("model", "new"), Pair("other", "kept"),
                                          Pair("user_content_model", "user")));
}

TEST(Staging, PublishesNoFileWhenOneCannotBe) {
  const ScratchFolder folder;
  folder.put("a", "old");
  fs::create_directory(folder.path() / "b");
  open_staging(folder.path(), "a", "t");
  folder.put(".a.t.staging/a", "new");
  folder.put(".a.t.staging/b", "new");

  EXPECT_THAT([&] { publish_files(folder.path(), "a", "t"); },
              ThrowsMessage<HostError>(HasSubstr("a folder of that name is in the way")));
  discard_staging(folder.path(), "a", "t");

  EXPECT_THAT(folder.files(), ElementsAre(Pair("a", "old")));
}

TEST(Staging, IsReadAndTidiedWhereverASaveWasKilled) {
  const ScratchFolder folder;
  const fs::path& root = folder.path();
  folder.put("model", "old");
  folder.put("user_content_model", "old");
  // Killed while writing: the old files count.
  folder.put(".model.t1.staging/model", "torn");
  EXPECT_EQ(read_file(locate(root, "model", "model")), "old");

  // Killed between the commit and its end: one file has moved out, one has not.
  folder.put("model", "new");
  folder.put(".model.commit/user_content_model", "new");
  EXPECT_EQ(read_file(locate(root, "model", "model")), "new");
  EXPECT_EQ(read_file(locate(root, "model", "user_content_model")), "new");

  // Killed while a folder was set aside for another.
  folder.put(".a_partial.old/model", "old");
  EXPECT_EQ(locate(root, "a_partial", "a_partial"), root / ".a_partial.old");
  folder.put("b_partial/model", "new");
  folder.put(".b_partial.old/model", "old");
  EXPECT_EQ(locate(root, "b_partial", "b_partial"), root / "b_partial");

  EXPECT_TRUE(open_staging(root, "model", "t2"));

  EXPECT_THAT(folder.files(),
              ElementsAre(Pair("a_partial/model", "old"), Pair("b_partial/model", "new"),
                          Pair("model", "new"), Pair("user_content_model", "new")));
}

TEST(Staging, NamesARootThatCannotBeMade) {
  const ScratchFolder folder;
  folder.put("file", "");

  EXPECT_THAT([&] { open_staging(folder.path() / "file" / "root", "a", "t"); },
              ThrowsMessage<HostError>(HasSubstr("file/root: Not a directory")));
}

TEST(Staging, KeepsTheNewestFolders) {
  const ScratchFolder folder;
  const auto now = fs::file_time_type::clock::now();
  for (const int age : {4, 1, 3, 2}) {
    const std::string name = fmt::format("step_{}_partial/manifest.json", age);
    folder.put(name, "{}");
    fs::last_write_time(folder.path() / name, now - std::chrono::hours(age));
  }
  folder.put("foreign_partial/model", "not ours");
  folder.put("other/manifest.json", "no checkpoint");

  const auto removed = prune_folders(folder.path(), "step_4_partial", 2);

  EXPECT_THAT(removed, ElementsAre("step_2_partial", "step_3_partial"));
  EXPECT_THAT(folder.files(), ElementsAre(Pair("foreign_partial/model", "not ours"),
                                          Pair("other/manifest.json", "no checkpoint"),
                                          Pair("step_1_partial/manifest.json", "{}"),
                                          Pair("step_4_partial/manifest.json", "{}")));
  EXPECT_THAT(prune_folders(folder.path(), "step_4_partial", 2), IsEmpty());
}

}  // namespace
}  // namespace smp::checkpoint
