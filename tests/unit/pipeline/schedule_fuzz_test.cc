// SPDX-License-Identifier: Apache-2.0
// Random programs under random delays: whatever arrives when, each rank computes what one alone
// computes, and nothing is left behind. SMP_FUZZ_ROUNDS says how many; each prints its seed when it
// fails.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "smp_runtime/pipeline/server.h"
#include "smp_runtime/transport/loopback.h"
#include "tests/unit/pipeline/toy_member.h"

namespace smp::pipeline::testing {
namespace {

/// One step of all ranks, a thread each.
void run_step(std::vector<std::unique_ptr<Member>>& members, std::vector<Result>& results) {
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

void run_round(uint32_t seed) {
  std::mt19937 random(seed);
  const int ranks = 2 + static_cast<int>(random() % 3);
  const auto program = random_program(random, ranks, 2 + random() % 7);
  const ServerOptions options{
      .schedule = random() % 2 == 0 ? Schedule::kSimple : Schedule::kInterleaved,
      .active_microbatches = static_cast<int64_t>(1 + random() % 5),
      .deterministic = random() % 2 == 0,
      .timeout = std::chrono::minutes(1)};
  const bool direct = random() % 2 == 0;
  std::vector<Result> results(1 + random() % 5);
  transport::LoopbackNetwork network(ranks);
  std::vector<std::unique_ptr<Member>> members;
  for (int rank = 0; rank < ranks; ++rank) {
    members.push_back(
        std::make_unique<Member>(program, rank, network, options, static_cast<uint32_t>(random())));
    members.back()->executor.direct = direct;
  }

  for (int step = 0; step < 2; ++step) {  // the second one may follow the plan of the first
    run_step(members, results);

    for (size_t microbatch = 0; microbatch < results.size(); ++microbatch) {
      const auto input = static_cast<int64_t>(microbatch) + 1;
      EXPECT_EQ(results[microbatch],
                (Result{run_alone(program, 0, input), run_alone(program, 0, 1)}));
    }
    for (const auto& member : members) EXPECT_TRUE(member->executor.empty());
  }
}

TEST(Schedule, ComputesTheSameHoweverLateMessagesAre) {
  const char* rounds = std::getenv("SMP_FUZZ_ROUNDS");
  const uint32_t count = rounds == nullptr ? 300 : static_cast<uint32_t>(std::stoul(rounds));
  for (uint32_t seed = 1; seed <= count; ++seed) {
    run_round(seed);

    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace smp::pipeline::testing
