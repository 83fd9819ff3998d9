// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "smp_runtime/record/record_file.h"

namespace smp::record {
namespace {

using nlohmann::json;

class TimelineFileTest : public ::testing::Test {
 protected:
  ~TimelineFileTest() override { std::filesystem::remove(name_); }

  [[nodiscard]] json whole() const {
    std::ifstream stream(name_);
    return json::parse(stream);
  }

  const std::string name_ = ::testing::TempDir() + fmt::format("timeline-{}.json", ::getpid());
};

TEST_F(TimelineFileTest, IsWholeAfterEachAppend) {
  TimelineFile file(name_);
  file.append("{\"n\":1},\n");
  EXPECT_EQ(whole(), json::parse(R"([{"n":1}])"));
  file.append("{\"n\":2},\n{\"n\":3},\n");
  EXPECT_EQ(whole(), json::parse(R"([{"n":1},{"n":2},{"n":3}])"));
}

TEST_F(TimelineFileTest, RanksOfAHostShareOne) {
  constexpr int kRanks = 4;
  constexpr int kAppends = 200;
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([this, rank] {
      TimelineFile file(name_);
      for (int i = 0; i < kAppends; ++i) file.append(fmt::format("{{\"rank\":{}}},\n", rank));
    });
  }
  ranks.clear();
  std::vector<int> count(kRanks);
  for (const json& event : whole()) ++count[event["rank"].get<std::size_t>()];
  EXPECT_THAT(count, ::testing::Each(kAppends));
}

TEST_F(TimelineFileTest, GoesOnBehindARankThatWasKilledInAWrite) {
  TimelineFile file(name_);
  file.append("{\"n\":1},\n{\"n\":2},\n");
  const auto size = std::filesystem::file_size(name_);
  std::filesystem::resize_file(name_, size - 6);  // in the middle of the second event
  file.append("{\"n\":3},\n");
  EXPECT_EQ(whole(), json::parse(R"([{"n":1},{"n":3}])"));
}

TEST_F(TimelineFileTest, EndsWhereItCannotBeWritten) {
  TimelineFile file("/proc/none/timeline.json");
  ::testing::internal::CaptureStderr();
  file.append("{},\n");
  file.append("{},\n");
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, ::testing::HasSubstr("the timeline cannot be written and ends here"));
  EXPECT_EQ(said.find("ends here"), said.rfind("ends here"));
  EXPECT_FALSE(file.is_open());
}

}  // namespace
}  // namespace smp::record
