// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/atomic_file.h"

#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "smp_runtime/core/error.h"
#include "tests/unit/checkpoint/full_disk.h"
#include "tests/unit/checkpoint/scratch_folder.h"

namespace smp::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::ThrowsMessage;

TEST(AtomicFile, AppearsAtItsCommitWithSizeAndChecksum) {
  const ScratchFolder folder;
  AtomicFile file(folder.path() / "model");
  file.write("1234");
  file.write("56789");
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "model"));

  const FileDigest digest = file.commit();

  EXPECT_EQ(digest, (FileDigest{.name = "model", .bytes = 9, .crc32c = 0xE3069283}));
  EXPECT_EQ(digest_of(folder.path() / "model"), digest);
  EXPECT_THAT(folder.files(), ElementsAre(Pair("model", "123456789")));
}

TEST(AtomicFile, LeavesTheOldFileAndNothingElseWhenItIsNotCommitted) {
  const ScratchFolder folder;
  folder.put("model", "old");

  { AtomicFile(folder.path() / "model").write("new"); }

  EXPECT_THAT(folder.files(), ElementsAre(Pair("model", "old")));
}

TEST(AtomicFile, MeetsNoLinkThatWaitsForItsDraft) {
  const ScratchFolder folder;
  folder.put("victim", "mine");
  const auto waiting = fmt::format(".model.{}.writing", ::getpid());
  std::filesystem::create_symlink("victim", folder.path() / waiting);

  write_file(folder.path() / "model", "new");

  EXPECT_EQ(read_file(folder.path() / "victim"), "mine");
  EXPECT_FALSE(std::filesystem::is_symlink(folder.path() / "model"));
  EXPECT_EQ(read_file(folder.path() / "model"), "new");
}

TEST(AtomicFile, LeavesTheOldFileWhenTheDiskIsFull) {
  const ScratchFolder folder;
  folder.put("model", "old");

  EXPECT_THAT(
      [&] {
        const FullDisk full(1 << 16);
        AtomicFile file(folder.path() / "model");
        file.write(std::string(1 << 20, 'x'));
        file.commit();
      },
      ThrowsMessage<HostError>(AllOf(HasSubstr("cannot write"), HasSubstr("/model: "))));

  EXPECT_THAT(folder.files(), ElementsAre(Pair("model", "old")));
}

TEST(AtomicFile, NamesAFolderThatIsNotThere) {
  const ScratchFolder folder;

  EXPECT_THAT([&] { AtomicFile file(folder.path() / "absent" / "model"); },
              ThrowsMessage<HostError>(HasSubstr("absent/model: No such file or directory")));
}

TEST(AtomicFile, DoesNotReplaceAFolder) {
  const ScratchFolder folder;
  folder.put("model/inside", "kept");

  EXPECT_THAT([&] { write_file(folder.path() / "model", "new"); },
              ThrowsMessage<HostError>(HasSubstr("Is a directory")));

  EXPECT_THAT(folder.files(), ElementsAre(Pair("model/inside", "kept")));
}

}  // namespace
}  // namespace smp::checkpoint
