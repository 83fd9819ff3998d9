// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/metrics/outputs/tensorboard_events.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "smp_runtime/core/error.h"
#include "tests/unit/metrics/event_reader.h"

namespace smp::metrics {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing_support::TemporaryFolder;

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

TEST(EventReader, HasTheChecksumOfRfc3720) {
  EXPECT_EQ(slow_crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(slow_crc32c(std::string(32, '\0')), 0x8A9136AAU);
}

TEST(EventReader, SeesAnyChangedByte) {
  const TemporaryFolder folder;
  EventFile(folder.path(), 1.75e9).append(std::vector<ScalarEvent>{{"train/loss", 2.5, 3, 1.75e9}});
  const std::string file =
      testing_support::read_file(folder.path() / names_in(folder.path()).at(0));
  ASSERT_EQ(records_of(file).size(), 2U);

  for (std::size_t at = 0; at < file.size(); ++at) {
    std::string changed = file;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    EXPECT_THROW(records_of(changed), std::runtime_error) << at;
  }
}

// Bytes that tensorboard 2.21 writes by RecordWriter(file).write(Event(...).SerializeToString()).
TEST(EventFile, HasTheBytesOfTensorBoardsOwnWriter) {
  const TemporaryFolder folder;
  const EventFile file(folder.path(), 1.75e9);

  file.append(std::vector<ScalarEvent>{{"train/loss", 2.5, 300, 1.75e9 + 0.5}});

  const std::string bytes =
      testing_support::read_file(folder.path() / names_in(folder.path()).at(0));
  EXPECT_EQ(hex(bytes.substr(0, 40)),
            "1800000000000000a37f4b220900000060b813da411a0d627261696e2e4576656e743a324a7029a2");
  EXPECT_EQ(hex(bytes.substr(40)),
            "2100000000000000017becf60900002060b813da4110ac022a130a110a0a747261696e2f6c6f7373150000"
            "2040662d0bf4");
}

TEST(EventFile, IsReadBackInOrder) {
  const TemporaryFolder folder;
  const EventFile file(folder.path() / "a" / "b", 1.75e9);
  constexpr std::int64_t kFar = std::int64_t{1} << 40;

  file.append(std::vector<ScalarEvent>{{"x", 1, 0, 5}, {"y", -2, 127, 6}, {"y", -3, 128, 6}});
  file.append(std::vector<ScalarEvent>{{"x", std::numeric_limits<float>::infinity(), kFar, 7.25}});

  const Curves curves = read_events(folder.path() / "a" / "b");
  EXPECT_EQ(curves.size(), 2U);
  EXPECT_THAT(curves.at("x"),
              ElementsAre(ReadPoint{0, 1, 5},
                          ReadPoint{kFar, std::numeric_limits<float>::infinity(), 7.25}));
  EXPECT_THAT(curves.at("y"), ElementsAre(ReadPoint{127, -2, 6}, ReadPoint{128, -3, 6}));
}

TEST(EventFile, IsNamedByTimeHostAndProcess) {
  char host[256] = {};
  ASSERT_EQ(::gethostname(host, sizeof(host) - 1), 0);
  const TemporaryFolder folder;

  const EventFile file(folder.path(), 123456789.9);

  EXPECT_THAT(names_in(folder.path()),
              ElementsAre(fmt::format("events.out.tfevents.0123456789.{}.{}.0", host, ::getpid())));
}

TEST(EventFile, OfTheSameSecondIsAnotherOne) {
  const TemporaryFolder folder;
  const EventFile first(folder.path(), 1.75e9);
  first.append(std::vector<ScalarEvent>{{"x", 1, 1, 5}});
  const EventFile second(folder.path(), 1.75e9);
  second.append(std::vector<ScalarEvent>{{"y", 2, 1, 5}});

  EXPECT_EQ(names_in(folder.path()).size(), 2U);
  EXPECT_EQ(read_events(folder.path()).size(), 2U);
}

TEST(EventFile, ThatCannotBeMadeSaysWhere) {
  const TemporaryFolder folder;
  testing_support::write_file(folder.path() / "file", "");
  const auto blocked = folder.path() / "file" / "events";

  EXPECT_THROW(EventFile(blocked, 1.75e9), HostError);
  const std::string said = testing_support::message_of([&] { EventFile(blocked, 1.75e9); });
  EXPECT_THAT(said, StartsWith("cannot make " + blocked.string() + ": "));
  EXPECT_THAT(said, HasSubstr("Not a directory"));
}

}  // namespace
}  // namespace smp::metrics
