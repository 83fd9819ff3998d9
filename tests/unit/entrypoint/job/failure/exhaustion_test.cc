// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "entrypoint/job/ending.h"

namespace entrypoint {
namespace {

namespace fs = std::filesystem;

class MemoryEvents : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "memory-events-XXXXXX").string();
    root_ = mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(root_); }

  void put(const fs::path& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  [[nodiscard]] std::optional<long> read() const { return oom_kills(root_ / "proc", root_ / "cg"); }

  fs::path root_;
};

TEST_F(MemoryEvents, ReadsVersion2OfItsOwnGroup) {
  put("proc/self/cgroup", "0::/docker/abc\n");
  put("cg/docker/abc/memory.events", "low 0\nhigh 0\nmax 9\noom 4\noom_kill 3\n");

  EXPECT_EQ(read(), 3);
}

TEST_F(MemoryEvents, FallsBackToTheRootThatAContainerSees) {
  put("proc/self/cgroup", "0::/docker/abc\n");
  put("cg/memory.events", "oom 4\noom_kill 5\n");

  EXPECT_EQ(read(), 5);
}

TEST_F(MemoryEvents, ReadsVersion1) {
  put("proc/self/cgroup", "7:cpu,cpuacct:/x\n4:memory:/docker/abc\n");
  put("cg/memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");

  EXPECT_EQ(read(), 2);
}

TEST_F(MemoryEvents, SaysNothingWhereNothingCanBeRead) { EXPECT_EQ(read(), std::nullopt); }

}  // namespace
}  // namespace entrypoint
