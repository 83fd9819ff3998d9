// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/call_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/partition/model_trees.h"

namespace smp::partition {
namespace {

using testing::ElementsAre;

TEST(CallProgram, EachRemoteCallIsARequestAndAResponse) {
  ModuleTree tree;
  tree.add_module({.name = "", .time_ns = 1});
  const int list = tree.add_module({.name = "list", .called = false}, 0);
  tree.add_module({.name = "list.0", .time_ns = 10, .input_bytes = 5, .output_bytes = 6}, list);
  const int inner = tree.add_module(
      {.name = "list.1", .time_ns = 20, .input_bytes = 7, .output_bytes = 8, .calls = 2}, list);
  tree.add_module({.name = "list.1.a", .time_ns = 40, .input_bytes = 1, .output_bytes = 1}, inner);
  tree.add_module({.name = "tail", .time_ns = 80}, 0);

  const CallProgram program = make_call_program(tree, {0, 0, 0, 1, 2, 0});

  std::vector<int> devices;
  std::vector<int> depths;
  std::vector<std::int64_t> work;
  for (const auto& run : program.runs) {
    devices.push_back(run.device);
    depths.push_back(run.depth);
    work.push_back(run.work_ns);
  }
  EXPECT_THAT(devices, ElementsAre(0, 1, 2, 1, 0));
  EXPECT_THAT(depths, ElementsAre(0, 1, 2, 1, 0));
  EXPECT_THAT(work, ElementsAre(11, 20, 40, 0, 80));
  EXPECT_EQ(program.messages(), 6) << "list.1 is called twice, list.1.a once";
  EXPECT_EQ(program.bytes(), 2 * (7 + 8 + 1 + 1));
}

TEST(CallProgram, ASequentialPassesResultsOn) {
  ModuleTree tree;
  tree.add_module({.name = ""});
  const int row = tree.add_module({.name = "row", .time_ns = 1, .passes_on = true}, 0);
  for (const char* name : {"row.0", "row.1", "row.2", "row.3"}) {
    tree.add_module({.name = name, .time_ns = 10, .input_bytes = 5, .output_bytes = 5}, row);
  }
  tree.add_module({.name = "tail", .time_ns = 80}, 0);

  const CallProgram program = make_call_program(tree, {0, 0, 0, 1, 1, 2, 0});

  std::vector<int> devices;
  std::vector<std::int64_t> work;
  for (const auto& run : program.runs) {
    devices.push_back(run.device);
    work.push_back(run.work_ns);
  }
  EXPECT_THAT(devices, ElementsAre(0, 1, 2, 0)) << "not over its own device";
  EXPECT_THAT(work, ElementsAre(11, 20, 10, 80));
  EXPECT_EQ(program.messages(), 3);
  EXPECT_EQ(program.bytes(), 2 * 3 * 5);
}

}  // namespace
}  // namespace smp::partition
