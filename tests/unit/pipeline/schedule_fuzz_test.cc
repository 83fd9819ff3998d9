// SPDX-License-Identifier: Apache-2.0
// Random programs under random delays: whatever arrives when, and whatever a step leaves out of its
// program, each rank computes what one alone computes, and nothing is left behind. Each prints its
// seed when it fails.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "smp_runtime/pipeline/server.h"
#include "smp_runtime/transport/loopback.h"
#include "tests/unit/fuzz_rounds.h"
#include "tests/unit/pipeline/toy_member.h"

namespace smp::pipeline::testing {
namespace {

using Members = std::vector<std::unique_ptr<Member>>;

ServerOptions random_options(std::mt19937& random) {
  return {.schedule = random() % 2 == 0 ? Schedule::kSimple : Schedule::kInterleaved,
          .active_microbatches = static_cast<int64_t>(1 + random() % 5),
          .deterministic = random() % 2 == 0,
          .timeout = std::chrono::minutes(1)};
}

/// The ranks of a network, which look at `program` whenever they run.
Members make_members(const std::vector<Module>& program, int ranks,
                     transport::LoopbackNetwork& network, const ServerOptions& options, bool direct,
                     std::mt19937& random) {
  Members members;
  for (int rank = 0; rank < ranks; ++rank) {
    members.push_back(
        std::make_unique<Member>(program, rank, network, options, static_cast<uint32_t>(random())));
    members.back()->executor.direct = direct;
  }
  return members;
}

/// One step of all ranks, a thread each.
void run_step(Members& members, std::vector<Result>& results) {
  std::vector<std::string> errors(members.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < members.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        if (rank == 0) {
          run_driver(*members[0], results);
        } else if (members[rank]->server.serve().body != "collected") {
          errors[rank] = "another result than the driver's";
        }
      } catch (const std::exception& error) {
        errors[rank] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

void expect_same_as_alone(const std::vector<Module>& program, const std::vector<Result>& results,
                          const Members& members) {
  for (size_t microbatch = 0; microbatch < results.size(); ++microbatch) {
    const auto input = static_cast<int64_t>(microbatch) + 1;
    EXPECT_EQ(results[microbatch],
              (Result{run_alone(program, 0, input), run_alone(program, 0, 1)}));
  }
  for (const auto& member : members) EXPECT_TRUE(member->executor.empty());
}

void run_round(uint32_t seed) {
  std::mt19937 random(seed);
  const int ranks = 2 + static_cast<int>(random() % 3);
  const auto program = random_program(random, ranks, 2 + random() % 7);
  const ServerOptions options = random_options(random);
  const bool direct = random() % 2 == 0;
  std::vector<Result> results(1 + random() % 5);
  transport::LoopbackNetwork network(ranks);
  Members members = make_members(program, ranks, network, options, direct, random);

  for (int step = 0; step < 2; ++step) {  // the second one may follow the plan of the first
    run_step(members, results);

    expect_same_as_alone(program, results, members);
  }
}

TEST(Schedule, ComputesTheSameHoweverLateMessagesAre) {
  for (uint32_t seed = 1; seed <= fuzz_rounds(300); ++seed) {
    run_round(seed);

    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

/// Some layers of the program are left out, others run another number of times.
std::vector<Module> part_of(const std::vector<Module>& program, std::mt19937& random) {
  std::vector<Module> part = program;
  for (Module& module : part) {
    module.repeats = 1 + static_cast<int>(random() % 2);
    std::erase_if(module.children, [&random](size_t) { return random() % 4 == 0; });
  }
  return part;
}

/// Runs steps under a planned order, of which some leave out other layers than those before.
/// Whether the plan was given up: then a later step is recorded, one microbatch after the other.
bool leaves_its_plan(uint32_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const int ranks = 2 + static_cast<int>(random() % 3);
  const auto whole = random_program(random, ranks, 3 + random() % 6);
  auto program = whole;
  ServerOptions options = random_options(random);
  options.deterministic = true;
  options.active_microbatches = static_cast<int64_t>(2 + random() % 4);  // 1 has no plan
  const bool direct = random() % 2 == 0;
  std::vector<Result> results(2 + random() % 4);
  transport::LoopbackNetwork network(ranks);
  Members members = make_members(program, ranks, network, options, direct, random);
  // Microbatches of which the driver's modules ran; guarded by the run token.
  std::vector<int64_t> runs;
  members[0]->executor.before_run = [&runs](int64_t microbatch, size_t, Phase) {
    runs.push_back(microbatch);
  };

  bool planned = false;
  bool recorded_again = false;
  for (int step = 0; step < 8; ++step) {
    if (step > 1 && random() % 2 == 0) program = part_of(whole, random);
    runs.clear();
    run_step(members, results);

    expect_same_as_alone(program, results, members);
    const bool one_by_one = std::ranges::is_sorted(runs);
    recorded_again = recorded_again || (planned && one_by_one);
    planned = planned || !one_by_one;
  }
  return recorded_again;
}

TEST(Schedule, ComputesTheSameWhenStepsLeaveLayersOut) {
  // A rank gives up an order that holds it back after a second: rounds wait side by side.
  constexpr uint32_t kAtOnce = 8;
  const uint32_t count = std::max(2 * kAtOnce, fuzz_rounds(300) / 50);
  std::atomic<uint32_t> left = 0;
  for (uint32_t seed = 0; seed < count; seed += kAtOnce) {
    std::vector<std::thread> threads;
    for (uint32_t one = seed; one < seed + kAtOnce; ++one) {
      threads.emplace_back([one, &left] { left += leaves_its_plan(one) ? 1U : 0U; });
    }
    for (std::thread& thread : threads) thread.join();

    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(left.load(), count / 4) << "too few plans were left to say anything";
}

}  // namespace
}  // namespace smp::pipeline::testing
