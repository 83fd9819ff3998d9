// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/runners/host_tasks.h"

#include <csignal>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include "entrypoint/process/supervisor.h"
#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Lt;
using testing::Pair;

std::string wait_for_ever() {
  while (true) poll(nullptr, 0, -1);
}

/// Runs helpers in this process, each ending at the next wait, and counts those that run.
class CountingRunner : public ProcessRunner {
 public:
  ChildId start(const Command& /*command*/) override { return -1; }
  ChildId start(const HelperProcess& helper) override {
    results_.push_back(reporting(helper.work)());
    at_once_.push_back(++running_);
    return static_cast<ChildId>(results_.size()) - 1;
  }
  Wake wait(Deadline /*deadline*/) override {
    --running_;
    ++ended_;
    return Wake::kChildEnded;
  }
  [[nodiscard]] std::optional<ExitStatus> ended(ChildId child) const override {
    if (child >= ended_) return std::nullopt;
    return ExitStatus{.code = child % 3 == 0 ? 1 : 0, .signal = 0};
  }
  [[nodiscard]] std::string collected(ChildId child) const override {
    return std::to_string(child);
  }
  void send(ChildId /*child*/, int /*signal*/) override {}
  [[nodiscard]] pid_t pid(ChildId /*child*/) const override { return 0; }
  [[nodiscard]] int stop_signal() const override { return ended_ >= stops_after ? SIGTERM : 0; }
  [[nodiscard]] int user_signal() const override { return 0; }

  int stops_after = 1000;
  std::vector<int> at_once_;

 private:
  std::vector<std::string> results_;
  int running_ = 0;
  int ended_ = 0;
};

std::vector<HostTask> tasks_of(int count) {
  std::vector<HostTask> tasks;
  for (int i = 0; i < count; ++i) {
    tasks.push_back({.host = fmt::format("algo-{}", i),
                     .helper = {.name = "task", .work = [] { return std::string(); }},
                     .limit = std::chrono::minutes(1)});
  }
  return tasks;
}

using Failures = std::vector<std::pair<std::string, std::string>>;

Failures run(ProcessRunner& runner, const std::vector<HostTask>& tasks, std::size_t at_once,
             bool heeds_stop = true) {
  Failures failures;
  run_host_tasks(
      runner, tasks, at_once, heeds_stop,
      [&](const std::string& host, const std::string& why) { failures.emplace_back(host, why); });
  return failures;
}

TEST(HostTasks, RunSomeAtATimeAndAllInTheEnd) {
  CountingRunner runner;

  const Failures failures = run(runner, tasks_of(7), 3);

  EXPECT_EQ(runner.at_once_.size(), 7U);
  EXPECT_THAT(runner.at_once_, Each(Lt(4)));
  EXPECT_THAT(failures, ElementsAre(Pair("algo-0", "0"), Pair("algo-3", "3"), Pair("algo-6", "6")));
}

TEST(HostTasks, DoNotStartAfterAStop) {
  CountingRunner runner;
  runner.stops_after = 2;

  const Failures failures = run(runner, tasks_of(5), 2);

  EXPECT_EQ(runner.at_once_.size(), 3U);
  EXPECT_THAT(failures, ElementsAre(Pair("algo-0", "0"), Pair("algo-2", ""), Pair("algo-3", ""),
                                    Pair("algo-4", "")));
}

TEST(HostTasks, OneThatTakesTooLongIsKilledAndTheOthersHaveTheirTime) {
  Supervisor supervisor;
  std::vector<HostTask> tasks = tasks_of(3);
  tasks[1].helper.work = wait_for_ever;
  tasks[1].limit = std::chrono::milliseconds(50);
  tasks[2].helper.work = []() -> std::string { throw smp::HostError("no way"); };

  const Failures failures = run(supervisor, tasks, 1);

  ASSERT_EQ(failures.size(), 2U);
  EXPECT_THAT(failures[0], Pair("algo-1", ""));
  EXPECT_EQ(failures[1].first, "algo-2");
  EXPECT_THAT(failures[1].second, testing::HasSubstr("no way"));
}

}  // namespace
}  // namespace entrypoint
