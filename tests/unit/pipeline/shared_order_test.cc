// SPDX-License-Identifier: Apache-2.0
// Pipeline groups whose ranks meet in collectives, as under tensor parallelism: they work in one
// order however late messages and ranks are.
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/pipeline/server.h"
#include "smp_runtime/transport/loopback.h"
#include "tests/unit/fuzz_rounds.h"
#include "tests/unit/pipeline/sibling_meeting.h"
#include "tests/unit/pipeline/toy_member.h"

namespace smp::pipeline::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using Meetings = std::vector<std::unique_ptr<SiblingMeeting>>;

/// One pipeline group: its ranks run one program, and rank r meets rank r of every other group.
class Group {
 public:
  Group(const std::vector<Module>& program, int ranks, const ServerOptions& options,
        Meetings& meetings, std::mt19937& random)
      : network_(ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      members_.push_back(std::make_unique<Member>(program, rank, network_, options,
                                                  static_cast<uint32_t>(random())));
      SiblingMeeting& meeting = *meetings[static_cast<size_t>(rank)];
      members_.back()->executor.before_run = [&meeting](int64_t microbatch, size_t module,
                                                        Phase phase) {
        meeting.meet(microbatch, module, phase);
      };
    }
  }

  ToyExecutor& executor(size_t rank) { return members_[rank]->executor; }

  /// Adds a thread for each rank that runs one step; its text for an error goes to `errors`.
  void start_step(std::vector<Result>& results, std::vector<std::thread>& threads,
                  std::vector<std::string>& errors) {
    for (const auto& member : members_) {
      std::string& error = errors.emplace_back();
      threads.emplace_back([&member = *member, &results, &error] {
        try {
          if (member.transport.rank() == 0) {
            run_driver(member, results);
          } else {
            member.server.serve();
          }
        } catch (const std::exception& exception) {
          error = exception.what();
        }
      });
    }
  }

 private:
  transport::LoopbackNetwork network_;
  std::vector<std::unique_ptr<Member>> members_;
};

/// Several groups of the same shape, each rank with one meeting for its siblings.
class Siblings {
 public:
  Siblings(int groups, int ranks, const std::vector<Module>& program, const ServerOptions& options,
           uint32_t seed) {
    std::mt19937 random(seed);
    for (int rank = 0; rank < ranks; ++rank) {
      meetings_.push_back(std::make_unique<SiblingMeeting>(groups));
    }
    for (int group = 0; group < groups; ++group) {
      groups_.push_back(std::make_unique<Group>(program, ranks, options, meetings_, random));
    }
    most_errors_ = static_cast<size_t>(groups * ranks);
  }

  Group& group(size_t number) { return *groups_[number]; }

  /// One step of all groups at once; the errors of all ranks, empty where there was none.
  std::vector<std::string> run_step(std::vector<std::vector<Result>>& results) {
    std::vector<std::string> errors;
    errors.reserve(most_errors_);  // threads refer to its elements
    std::vector<std::thread> threads;
    for (size_t number = 0; number < groups_.size(); ++number) {
      groups_[number]->start_step(results[number], threads, errors);
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  }

 private:
  Meetings meetings_;
  std::vector<std::unique_ptr<Group>> groups_;
  size_t most_errors_ = 0;
};

ServerOptions shared_order(Schedule schedule, int64_t active) {
  return {.schedule = schedule,
          .active_microbatches = active,
          .deterministic = true,
          .shared_order = true,
          .timeout = std::chrono::minutes(1)};
}

void run_round(uint32_t seed) {
  std::mt19937 random(seed);
  const int groups = 2 + static_cast<int>(random() % 2);
  const int ranks = 2 + static_cast<int>(random() % 2);
  const auto program = random_program(random, ranks, 2 + random() % 7);
  const Schedule schedule = random() % 2 == 0 ? Schedule::kSimple : Schedule::kInterleaved;
  const auto active = static_cast<int64_t>(1 + random() % 5);
  const size_t microbatches = 1 + random() % 5;
  Siblings siblings(groups, ranks, program, shared_order(schedule, active), seed);

  for (int step = 0; step < 3; ++step) {  // the first is recorded, the others follow the plan
    std::vector<std::vector<Result>> results(static_cast<size_t>(groups),
                                             std::vector<Result>(microbatches));
    EXPECT_THAT(siblings.run_step(results), Each(""));
    for (const auto& of_group : results) {
      for (size_t microbatch = 0; microbatch < microbatches; ++microbatch) {
        const auto input = static_cast<int64_t>(microbatch) + 1;
        EXPECT_EQ(of_group[microbatch],
                  (Result{run_alone(program, 0, input), run_alone(program, 0, 1)}));
      }
    }
  }
}

TEST(SharedOrder, SiblingsMeetForTheSameWorkHoweverLateMessagesAre) {
  const uint32_t count = fuzz_rounds(12);
  for (uint32_t seed = 1; seed <= count; ++seed) {
    run_round(seed);

    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

/// The body on rank 0 calls a module on rank 1, twice.
std::vector<Module> there_and_back() {
  return {Module{.owner = 0, .weight = 1, .repeats = 2, .children = {1}},
          Module{.owner = 1, .weight = 2, .repeats = 1, .children = {}}};
}

TEST(SharedOrder, IsKeptWhenARankIsLateForLongerThanAnyStepTook) {
  std::mt19937 random(5);  // with this program, groups that go by time part in the pause below
  const auto program = random_program(random, 3, 6);
  Siblings siblings(2, 3, program, shared_order(Schedule::kInterleaved, 3), 1);
  std::vector<std::vector<Result>> results(2, std::vector<Result>(4));
  ASSERT_THAT(siblings.run_step(results), Each(""));
  ToyExecutor& late = siblings.group(1).executor(2);
  late.before_run = [inner = late.before_run, runs = 0](int64_t microbatch, size_t module,
                                                        Phase phase) mutable {
    // A plan that time could prove wrong would be given up after a second.
    if (++runs == 4) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    inner(microbatch, module, phase);
  };

  EXPECT_THAT(siblings.run_step(results), Each(""));

  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0][3], (Result{run_alone(program, 0, 4), run_alone(program, 0, 1)}));
}

TEST(SharedOrder, OfAStepThatCallsOtherModulesIsAnErrorThatSaysSo) {
  for (const int repeats : {1, 3}) {
    auto program = there_and_back();
    Siblings siblings(2, 2, program, shared_order(Schedule::kInterleaved, 2), 1);
    std::vector<std::vector<Result>> results(2, std::vector<Result>(4));
    ASSERT_THAT(siblings.run_step(results), Each(""));
    program[0].repeats = repeats;

    EXPECT_THAT(siblings.run_step(results),
                Each(HasSubstr("cannot keep one order of work; give each way through the model")));
  }
}

TEST(SharedOrder, LetsStepsDifferThatRunOneMicrobatchAfterTheOther) {
  auto program = there_and_back();
  Siblings siblings(2, 2, program, shared_order(Schedule::kInterleaved, 1), 1);
  std::vector<std::vector<Result>> results(2, std::vector<Result>(4));
  for (const int repeats : {2, 1, 3}) {
    program[0].repeats = repeats;

    EXPECT_THAT(siblings.run_step(results), Each(""));

    EXPECT_EQ(results[1][0], (Result{run_alone(program, 0, 1), run_alone(program, 0, 1)}));
  }
}

}  // namespace
}  // namespace smp::pipeline::testing
