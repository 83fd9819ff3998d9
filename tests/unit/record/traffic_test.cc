// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/record/traffic.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

namespace smp::record {
namespace {

std::string last_line_of(const std::string& file) {
  std::ifstream stream(file);
  std::string line, last;
  while (std::getline(stream, line)) last = line;
  return last;
}

TEST(Traffic, IsToldOnceUntilMoreCame) {
  Traffic traffic;
  EXPECT_FALSE(traffic.changed());
  traffic.add(3, 10);
  traffic.add(1, 5);
  traffic.add(3, 2);
  EXPECT_TRUE(traffic.changed());
  EXPECT_EQ(traffic.take_line(), R"({"traffic":[[1,1,5],[3,2,12]]})");
  EXPECT_FALSE(traffic.changed());
}

TEST(TrafficRecord, LeavesOutItsOwnRankAndWritesAllOfItAtLast) {
  const std::string file = ::testing::TempDir() + std::to_string(::getpid()) + "-traffic.jsonl";
  const std::array ranks{0, 1, 2};
  {
    TrafficRecord record(file, 1, "algo-1");
    record.sent(ranks, 0);
    record.sent(ranks, 7);
    EXPECT_EQ(last_line_of(file), R"({"traffic":[[0,1,7],[2,1,7]]})");
    record.sent(ranks, 1);  // within the same second
    EXPECT_EQ(last_line_of(file), R"({"traffic":[[0,1,7],[2,1,7]]})");
    record.flush();
  }
  EXPECT_EQ(last_line_of(file), R"({"traffic":[[0,2,8],[2,2,8]]})");
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace smp::record
