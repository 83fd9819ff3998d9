// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/fetch/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "smp_runtime/core/error.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace entrypoint::fetch {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using testing_support::message_of;
using testing_support::read_file;
using testing_support::TemporaryFolder;
using testing_support::write_file;

struct Member {
  std::string name;
  unsigned type = AE_IFREG;
  std::string link;  ///< target of a symbolic link; with AE_IFREG of a hard one
  std::string text = "text";
  unsigned mode = 0644;
};

/// An archive written by libarchive itself, `filter` as in its API.
void write_archive(const fs::path& file, const std::vector<Member>& members,
                   int filter = ARCHIVE_FILTER_GZIP) {
  archive* writer = archive_write_new();
  archive_write_set_format_pax_restricted(writer);
  archive_write_add_filter(writer, filter);
  ASSERT_EQ(archive_write_open_filename(writer, file.c_str()), ARCHIVE_OK);
  for (const Member& member : members) {
    archive_entry* entry = archive_entry_new();
    archive_entry_set_pathname(entry, member.name.c_str());
    archive_entry_set_filetype(entry, member.type);
    archive_entry_set_perm(entry, member.mode);
    archive_entry_set_uid(entry, 4242);
    archive_entry_set_mtime(entry, 1'000'000, 0);
    const bool has_content = member.type == AE_IFREG && member.link.empty();
    if (member.type == AE_IFLNK) archive_entry_set_symlink(entry, member.link.c_str());
    if (member.type == AE_IFREG && !member.link.empty()) {
      archive_entry_set_hardlink(entry, member.link.c_str());
    }
    archive_entry_set_size(entry, has_content ? static_cast<la_int64_t>(member.text.size()) : 0);
    // ARCHIVE_WARN: a name that this locale cannot spell.
    ASSERT_GE(archive_write_header(writer, entry), ARCHIVE_WARN) << archive_error_string(writer);
    if (has_content) archive_write_data(writer, member.text.data(), member.text.size());
    archive_entry_free(entry);
  }
  ASSERT_EQ(archive_write_free(writer), ARCHIVE_OK);
}

/// One file in the old GNU form, of `size` bytes by its header, of which the first four are there.
void write_sparse_archive(const fs::path& file, std::uint64_t size) {
  std::string header(512, '\0');
  const auto put = [&](std::size_t at, std::string_view text) {
    header.replace(at, text.size(), text);
  };
  const auto put_number = [&](std::size_t at, std::uint64_t number) {  // in 12 bytes, base 256
    header[at] = '\x80';
    for (std::size_t byte = 0; byte < 8; ++byte) {
      header[at + 11 - byte] = static_cast<char>(number >> (8 * byte));
    }
  };
  put(0, "sparse");
  put(100, "0000644");
  put(124, "00000000004");  // bytes that follow
  put(136, "00000000000");
  put(148, "        ");  // the checksum counts as blanks
  put(156, "S");
  put(257, "ustar  ");
  put_number(386, 0);  // one part, of four bytes
  put_number(398, 4);
  put_number(483, size);
  unsigned sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  put(148, fmt::format("{:06o}", sum) + std::string(1, '\0'));
  write_file(file, header + "text" + std::string(508 + 1024, '\0'));
}

struct Case {
  TemporaryFolder folder;
  fs::path file = folder.path() / "a";
  fs::path code = folder.path() / "x" / "y" / "code";

  Case() { fs::create_directories(code); }

  Unpacked unpack_members(const std::vector<Member>& members, const ArchiveLimits& limits = {}) {
    write_archive(file, members);
    return unpack(file, code, limits);
  }
  /// Why an archive was refused; nothing may be there of it.
  std::string refusal(const ArchiveLimits& limits = {}) const {
    const std::string text = message_of([&] { unpack(file, code, limits); });
    EXPECT_THAT(listing(), IsEmpty());
    return text;
  }
  /// Everything in the folder, links with their targets.
  std::vector<std::string> listing() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(code)) {
      std::string name = entry.path().lexically_relative(code).string();
      if (entry.is_symlink()) name += " -> " + fs::read_symlink(entry.path()).string();
      names.push_back(name);
    }
    return names;
  }
};

TEST(Archive, FilesFoldersModesAndTimesArrive) {
  Case job;

  const Unpacked unpacked = job.unpack_members({{.name = "./"},
                                                {.name = "d", .type = AE_IFDIR, .mode = 0500},
                                                {.name = "d/run", .text = "#!", .mode = 06751},
                                                {.name = "ü.py"}});

  EXPECT_TRUE(unpacked.is_archive);
  EXPECT_EQ(unpacked.members, 4);
  EXPECT_THAT(unpacked.warnings, IsEmpty());
  EXPECT_EQ(read_file(job.code / "d/run"), "#!");
  struct stat run {};
  ASSERT_EQ(stat((job.code / "d/run").c_str(), &run), 0);
  EXPECT_EQ(run.st_mode & 07777U, 0751U);
  EXPECT_EQ(run.st_mtime, 1'000'000);
  EXPECT_EQ(run.st_uid, getuid());
  EXPECT_EQ(fs::status(job.code / "d").permissions(), fs::perms(0700));
  EXPECT_TRUE(fs::exists(job.code / "ü.py"));
}

TEST(Archive, EveryUsualCompressionIsRead) {
  for (const int filter : {ARCHIVE_FILTER_NONE, ARCHIVE_FILTER_GZIP, ARCHIVE_FILTER_BZIP2,
                           ARCHIVE_FILTER_XZ, ARCHIVE_FILTER_ZSTD}) {
    Case job;
    write_archive(job.file, {{.name = "train.py"}}, filter);

    EXPECT_TRUE(unpack(job.file, job.code, {}).is_archive) << filter;
    EXPECT_EQ(read_file(job.code / "train.py"), "text") << filter;
  }
}

TEST(Archive, AnEmptyOneIsOneToo) {
  Case job;

  EXPECT_TRUE(job.unpack_members({}).is_archive);
  EXPECT_THAT(job.listing(), IsEmpty());
}

TEST(Archive, OtherFilesAreNone) {
  for (const char* text : {"", "print('hello')\n", "\x1f\x8b not really gzip"}) {
    Case job;
    write_file(job.file, text);

    const Unpacked unpacked = unpack(job.file, job.code, {});

    EXPECT_FALSE(unpacked.is_archive) << text;
    EXPECT_NE(unpacked.refusal, "") << text;
  }
  EXPECT_THROW(unpack("/no/such/file", "/tmp", {}), smp::HostError);
}

TEST(Archive, ACutOneIsAnErrorOrNone) {
  Case job;
  std::string noise;
  for (unsigned i = 0, x = 1; i < 500'000; ++i) {
    x = x * 69069 + 1;
    noise += static_cast<char>(x >> 24);
  }
  write_archive(job.file, {{.name = "big", .text = noise}});

  fs::resize_file(job.file, 300'000);
  EXPECT_THAT(job.refusal(), HasSubstr("not a whole archive"));

  fs::resize_file(job.file, 1000);
  EXPECT_EQ(unpack(job.file, job.code, {}).refusal, "truncated gzip input");
}

TEST(Archive, ABombLeavesNothing) {
  Case job;
  write_archive(job.file,
                {{.name = "train.py"}, {.name = "bomb", .text = std::string(30'000'000, 0)}});
  EXPECT_LT(fs::file_size(job.file), 100'000U);

  EXPECT_THAT(job.refusal({.bytes = 20'000'000}),
              AllOf(HasSubstr("first 2 members take more than 20000000 bytes"),
                    HasSubstr("raise SM_LAUNCH_CODE_MAX_BYTES")));

  unpack(job.file, job.code, {.bytes = 31'000'000});
  EXPECT_EQ(fs::file_size(job.code / "bomb"), 30'000'000U);
}

TEST(Archive, ASparseMemberCountsAsItsHeaderSays) {
  Case job;
  write_sparse_archive(job.file, std::uint64_t{1} << 50);

  EXPECT_THAT(job.refusal(), HasSubstr("nine tenths of the space that is free"));

  write_sparse_archive(job.file, 1'000'000);
  unpack(job.file, job.code, {});
  EXPECT_EQ(fs::file_size(job.code / "sparse"), 1'000'000U);
}

TEST(Archive, ManySmallMembersCountAsWhatTheyTakeOnADisk) {
  Case job;
  std::vector<Member> members;
  for (int number = 0; number < 100; ++number) {
    members.push_back({.name = std::to_string(number), .text = "x"});
  }
  write_archive(job.file, members);

  EXPECT_THAT(job.refusal({.bytes = 100'000}), HasSubstr("take more than 100000 bytes"));
  EXPECT_THAT(job.refusal({.members = 99}), AllOf(HasSubstr("more than 99 members"),
                                                  HasSubstr("raise SM_LAUNCH_CODE_MAX_FILES")));
  EXPECT_EQ(unpack(job.file, job.code, {.members = 100}).members, 100);
}

TEST(Archive, NamesThatLeadOutAreMadeHarmless) {
  Case job;

  const Unpacked unpacked = job.unpack_members(
      {{.name = "/abs"}, {.name = "../../up"}, {.name = ".."}, {.name = "a\\b"}});

  EXPECT_THAT(job.listing(), UnorderedElementsAre("abs", "up", "a", "a/b"));
  EXPECT_THAT(
      unpacked.warnings,
      ElementsAre("\"/abs\": unpacked as abs", "\"../../up\": unpacked as up",
                  "\"..\": left out: nothing is left of its name", "\"a\\b\": unpacked as a/b"));
  for (const auto& entry : fs::directory_iterator(job.folder.path() / "x" / "y")) {
    EXPECT_EQ(entry.path(), job.code);
  }
}

TEST(Archive, DevicesAndFifosAreLeftOut) {
  Case job;

  const Unpacked unpacked =
      job.unpack_members({{.name = "c", .type = AE_IFCHR}, {.name = "p", .type = AE_IFIFO}});

  EXPECT_THAT(job.listing(), IsEmpty());
  EXPECT_EQ(unpacked.warnings.size(), 2U);
}

TEST(Archive, LinksStayInside) {
  Case job;

  const Unpacked unpacked =
      job.unpack_members({{.name = "real"},
                          {.name = "d/up", .type = AE_IFLNK, .link = "../real"},
                          {.name = "out", .type = AE_IFLNK, .link = ".."},
                          {.name = "abs", .type = AE_IFLNK, .link = "/etc"},
                          {.name = "later", .type = AE_IFLNK, .link = "missing"},
                          {.name = "hard", .link = "real"},
                          {.name = "hard_out", .link = "../../a"},
                          {.name = "hard_none", .link = "nothing"}});

  EXPECT_THAT(job.listing(),
              UnorderedElementsAre("real", "d", "d/up -> ../real", "later -> missing", "hard"));
  EXPECT_TRUE(fs::equivalent(job.code / "real", job.code / "hard"));
  EXPECT_EQ(unpacked.warnings.size(), 4U);
}

TEST(Archive, AWayOutInTwoStepsIsClosed) {
  Case job;

  const Unpacked unpacked =
      job.unpack_members({{.name = "way_out", .type = AE_IFLNK, .link = "l/m/n/.."},
                          {.name = "l/m/n", .type = AE_IFLNK, .link = "../.."},
                          {.name = "third", .type = AE_IFLNK, .link = "l/m/n/../../secret"}});

  EXPECT_THAT(job.listing(), UnorderedElementsAre("l", "l/m", "l/m/n -> ../.."));
  EXPECT_THAT(unpacked.warnings,
              UnorderedElementsAre("way_out: left out: a link that leads outside the code folder",
                                   "third: left out: a link that leads outside the code folder"));
}

TEST(Archive, NothingIsWrittenThroughALink) {
  Case job;
  fs::create_directory(job.folder.path() / "outside");
  fs::create_symlink(job.folder.path() / "outside", job.code / "baked");

  const Unpacked unpacked = job.unpack_members({{.name = "baked/planted"},
                                                {.name = "l", .type = AE_IFLNK, .link = "d"},
                                                {.name = "l/file"},
                                                {.name = "d", .type = AE_IFDIR}});

  EXPECT_TRUE(fs::is_empty(job.folder.path() / "outside"));
  EXPECT_TRUE(fs::is_regular_file(job.code / "l/file"));
  EXPECT_FALSE(fs::is_symlink(job.code / "l"));
  EXPECT_THAT(unpacked.warnings, Contains(HasSubstr("baked/planted: left out")));
}

TEST(Archive, TheLaterOfTwoMembersCountsAndOldFilesGiveWay) {
  Case job;
  write_file(job.code / "train.py", "old, and longer than the new one");
  fs::create_hard_link(job.code / "train.py", job.folder.path() / "keep");

  job.unpack_members({{.name = "train.py", .text = "first"},
                      {.name = "train.py", .text = "new"},
                      {.name = "x", .type = AE_IFLNK, .link = "train.py"},
                      {.name = "x", .text = "file"}});

  EXPECT_EQ(read_file(job.code / "train.py"), "new");
  EXPECT_EQ(read_file(job.code / "x"), "file");
  EXPECT_FALSE(fs::is_symlink(job.code / "x"));
  EXPECT_EQ(read_file(job.folder.path() / "keep"), "old, and longer than the new one");
}

TEST(Archive, MembersInEachOthersWayAreLeftOut) {
  Case job;

  const Unpacked unpacked = job.unpack_members(
      {{.name = "a"}, {.name = "a/b"}, {.name = "d/f"}, {.name = "d", .text = "no"}});

  EXPECT_THAT(job.listing(), UnorderedElementsAre("a", "d", "d/f"));
  EXPECT_EQ(unpacked.warnings.size(), 2U);
}

}  // namespace
}  // namespace entrypoint::fetch
