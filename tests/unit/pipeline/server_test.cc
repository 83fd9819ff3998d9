// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/server.h"

#include <chrono>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/record/recorder.h"
#include "smp_runtime/transport/loopback.h"
#include "tests/unit/pipeline/scripted_transport.h"
#include "tests/unit/pipeline/toy_program.h"
#include "tests/unit/pipeline/wrapped_transport.h"

namespace smp::pipeline::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Refuses one message, as without memory for it.
class RefusingTransport : public WrappedTransport {
 public:
  using WrappedTransport::WrappedTransport;
  /// Refuses the send behind the next `count`.
  void refuse_after(int count) { left_ = count; }

  void send(int destination, transport::Message message) override {
    if (left_-- == 0) throw std::runtime_error("no memory, on purpose");
    WrappedTransport::send(destination, std::move(message));
  }

 private:
  int left_ = -1;
};

/// Waits for what one rank says of itself for as long as that takes: no deadline decides a test.
class PatientTransport : public WrappedTransport {
 public:
  PatientTransport(std::unique_ptr<transport::Transport> inner, int rank)
      : WrappedTransport(std::move(inner)), rank_(rank) {}

  void send(int destination, transport::Message message) override {
    if (destination == rank_ && decode(message).kind == Kind::kInquiry) answer_is_due_ = true;
    WrappedTransport::send(destination, std::move(message));
  }
  std::optional<transport::Message> receive(Clock::time_point deadline) override {
    auto message = WrappedTransport::receive(answer_is_due_ ? kNever : deadline);
    if (message && message->source == rank_) answer_is_due_ = false;
    return message;
  }

 private:
  const int rank_;
  bool answer_is_due_ = false;
};

/// A pipeline group whose ranks are threads of this process.
class Group {
 public:
  Group(std::vector<Module> program, int ranks, const ServerOptions& options,
        const std::string& timeline_file = "")
      : program_(std::move(program)), network_(ranks) {
    std::vector<int> all(static_cast<std::size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    for (int rank = 0; rank < ranks; ++rank) {
      auto member = std::make_unique<Member>(program_, rank);
      member->transport = std::make_unique<RefusingTransport>(network_.endpoint(rank));
      ServerOptions own = options;
      own.name = fmt::format("rank {}", rank);
      own.timeline.ranks = all;
      if (!timeline_file.empty()) {
        own.timeline.recorder = std::make_shared<record::Recorder>(
            record::RecorderOptions{.rank = rank, .host = "host", .timeline_file = timeline_file});
      }
      member->server = std::make_unique<Server>(*member->transport, member->executor, own);
      member->executor.attach(*member->server);
      members_.push_back(std::move(member));
    }
  }

  RefusingTransport& transport(int rank) { return *members_[static_cast<size_t>(rank)]->transport; }
  ToyExecutor& executor(int rank) { return members_[static_cast<size_t>(rank)]->executor; }
  std::vector<Module>& program() { return program_; }

  /// One step on all ranks; the errors by rank.
  std::vector<std::exception_ptr> step(int64_t microbatches, std::vector<Result>& results,
                                       const std::string& kind = "step") {
    results.assign(static_cast<size_t>(microbatches), Result{});
    std::vector<std::exception_ptr> errors(members_.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < members_.size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          if (rank == 0) {
            drive(kind, microbatches, results);
          } else {
            served_.at(rank) = members_[rank]->server->serve().body;
          }
        } catch (...) {
          errors[rank] = std::current_exception();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  }

  std::vector<int64_t> order_of(int rank) {
    const std::lock_guard lock(mutex_);
    return orders_[static_cast<size_t>(rank)];
  }
  const std::string& served(size_t rank) { return served_.at(rank); }
  const StepUse& use(size_t rank) { return members_.at(rank)->server->last_step(); }

 private:
  struct Member {
    Member(const std::vector<Module>& program, int rank) : executor(program, rank) {}
    ToyExecutor executor;
    std::unique_ptr<RefusingTransport> transport;
    std::unique_ptr<Server> server;
  };

  void drive(const std::string& kind, int64_t microbatches, std::vector<Result>& results) {
    Member& driver = *members_[0];
    {
      const std::lock_guard lock(mutex_);
      orders_[0].clear();
    }
    driver.server->drive(
        kind, microbatches,
        [&](int64_t microbatch) {
          ToyExecutor::Tape tape;
          Result& result = results[static_cast<size_t>(microbatch)];
          result.value = driver.executor.run(0, microbatch + 1, tape);
          driver.server->enter_backward();
          {
            const std::lock_guard lock(mutex_);
            orders_[0].push_back(microbatch);
          }
          size_t end = tape.size();
          result.derivative = driver.executor.unrun(tape, end, 1);
        },
        [] { return CallData{.body = "collected", .payload = nullptr}; });
  }

  std::vector<Module> program_;
  transport::LoopbackNetwork network_;
  std::vector<std::unique_ptr<Member>> members_;
  std::map<size_t, std::string> served_{{1, ""}, {2, ""}, {3, ""}};
  std::mutex mutex_;  // guards orders_
  std::map<size_t, std::vector<int64_t>> orders_{{0, {}}};
};

void expect_same_as_alone(const std::vector<Module>& program, const std::vector<Result>& results) {
  for (size_t microbatch = 0; microbatch < results.size(); ++microbatch) {
    const auto input = static_cast<int64_t>(microbatch) + 1;
    EXPECT_EQ(results[microbatch].value, run_alone(program, 0, input));
    EXPECT_EQ(results[microbatch].derivative, run_alone(program, 0, 1));
  }
}

std::string text_of(const std::exception_ptr& error) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return exception.what();
  }
}

struct Case {
  Schedule schedule;
  bool deterministic;
};

class AnyProgram : public ::testing::TestWithParam<Case> {};

TEST_P(AnyProgram, ComputesOnSeveralRanksWhatOneRankComputes) {
  std::mt19937 random(7);
  for (int round = 0; round < 40; ++round) {
    const int ranks = 2 + static_cast<int>(random() % 3);
    const auto program = random_program(random, ranks, 2 + random() % 9);
    const auto microbatches = static_cast<int64_t>(1 + random() % 6);
    Group group(program, ranks,
                {.schedule = GetParam().schedule,
                 .active_microbatches = static_cast<int64_t>(1 + random() % 5),
                 .deterministic = GetParam().deterministic});
    for (int rank = 0; rank < ranks; ++rank) group.executor(rank).direct = round % 2 == 0;

    for (int step = 0; step < 3; ++step) {
      std::vector<Result> results;
      const auto errors = group.step(microbatches, results);

      for (const auto& error : errors) ASSERT_EQ(text_of(error), "");
      expect_same_as_alone(program, results);
      EXPECT_EQ(group.served(1), "collected");
      for (int rank = 0; rank < ranks; ++rank) EXPECT_TRUE(group.executor(rank).empty());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Server, AnyProgram,
                         ::testing::Values(Case{Schedule::kInterleaved, false},
                                           Case{Schedule::kInterleaved, true},
                                           Case{Schedule::kSimple, false},
                                           Case{Schedule::kSimple, true}));

// Root on rank 0 with one child on rank 1.
std::vector<Module> two_modules() {
  return {{.owner = 0, .weight = 2, .repeats = 1, .children = {1}},
          {.owner = 1, .weight = 3, .repeats = 1, .children = {}}};
}

TEST(Server, RunsOneRankWithoutTasks) {
  auto program = two_modules();
  program[1].owner = 0;
  Group group(program, 1, {});
  std::vector<Result> results;

  const auto errors = group.step(4, results);

  EXPECT_EQ(text_of(errors[0]), "");
  expect_same_as_alone(program, results);
}

TEST(Server, SimpleRunsAllForwardsBeforeAnyBackward) {
  Group group(two_modules(), 2, {.schedule = Schedule::kSimple, .active_microbatches = 1});
  std::vector<Result> results;

  const auto errors = group.step(5, results);

  EXPECT_EQ(text_of(errors[0]), "");
  EXPECT_EQ(group.order_of(0), (std::vector<int64_t>{0, 1, 2, 3, 4}));
}

TEST(Server, StepUnlikeThePlannedOneStillComputesTheSame) {
  std::mt19937 random(3);
  Group group(random_program(random, 3, 6), 3, {.active_microbatches = 3, .deterministic = true});
  std::vector<Result> results;
  for (int step = 0; step < 2; ++step) group.step(4, results);  // recorded, then planned

  for (Module& module : group.program()) module.repeats = 3 - module.repeats;
  for (int step = 0; step < 2; ++step) {
    for (const auto& error : group.step(4, results)) EXPECT_EQ(text_of(error), "");
    expect_same_as_alone(group.program(), results);
  }
}

TEST(Server, KindsOfStepsTakeTurnsEachInItsOwnOrder) {
  std::mt19937 random(4);
  Group group(random_program(random, 3, 6), 3, {.active_microbatches = 3, .deterministic = true});
  std::vector<Result> results;

  for (const char* kind : {"train", "train", "test", "test", "train", "other", "train"}) {
    for (const auto& error : group.step(4, results, kind)) EXPECT_EQ(text_of(error), "");
    expect_same_as_alone(group.program(), results);
  }
}

TEST(Server, DrawsWhatEachRankDid) {
  const std::string file = ::testing::TempDir() + fmt::format("timeline-{}.json", ::getpid());
  Group group(two_modules(), 2, {}, file);
  std::vector<Result> results;
  for (int step = 0; step < 2; ++step) group.step(4, results);

  std::map<std::string, int> count;
  std::map<int, std::map<double, double>> lanes;  // begin and end of the spans of a rank
  std::multiset<std::string> sent;
  std::multiset<std::string> received;
  std::ifstream stream(file);  // whole while the ranks go on
  for (const auto& event : nlohmann::json::parse(stream)) {
    const std::string phase = event["ph"];
    if (phase == "X") {
      ++count[fmt::format("{} on {}", event["cat"].get<std::string>(),
                          event["tid"].get<int>() / 16)];
      const double begin = event["ts"];
      lanes[event["tid"]][begin] = begin + event["dur"].get<double>();
    } else if (phase != "M") {
      (phase == "b" ? sent : received).insert(event["id"]);
    }
  }
  std::filesystem::remove(file);

  EXPECT_EQ(count["forward on 1"], 8);
  EXPECT_EQ(count["backward on 1"], 8);
  EXPECT_EQ(count["forward on 0"], 16);  // until the call, and from its result on
  EXPECT_EQ(sent.size(), 2 * 4 * 4U);    // steps, microbatches, kinds of messages
  EXPECT_EQ(sent, received);
  for (const auto& [rank, spans] : lanes) {
    double last_end = 0;
    for (const auto& [begin, end] : spans) {
      EXPECT_GE(begin, last_end - 0.01) << "two spans of rank " << rank << " overlap";
      last_end = end;
    }
  }
}

TEST(Server, AddsUpHowARankSpentTheStep) {
  Group group(two_modules(), 2, {});
  std::vector<Result> results;

  group.step(4, results);
  group.step(4, results);

  for (const size_t rank : {0U, 1U}) {
    EXPECT_GT(group.use(rank).computed.count(), 0);
    EXPECT_LE(group.use(rank).computed + group.use(rank).waited, group.use(rank).total);
  }
  const StepUse& use = group.use(1);
  EXPECT_EQ(use.messages_sent, 9);  // one of them of the step before
  // Bodies travelled in the first step.
  EXPECT_EQ(use.bytes_sent, 8 * sizeof(int64_t) + sizeof(StepShares));
}

TEST(Server, FailureOnOneRankReachesAllRanksAndTheNextStepRuns) {
  const auto program = two_modules();
  Group group(program, 3, {});
  group.executor(1).fail_in_module = 1;
  std::vector<Result> results;

  const auto errors = group.step(4, results);

  EXPECT_EQ(text_of(errors[1]), "module 1 fails on purpose");
  for (const size_t other : {0U, 2U}) {
    EXPECT_THAT(text_of(errors[other]), HasSubstr("rank 1 failed in step 1"));
    EXPECT_THAT(text_of(errors[other]), HasSubstr("module 1 fails on purpose"));
  }
  group.executor(1).fail_in_module = SIZE_MAX;
  for (const auto& error : group.step(4, results)) EXPECT_EQ(text_of(error), "");
  expect_same_as_alone(program, results);
}

TEST(Server, AMessageThatCannotBeSentFailsTheStepAndTheNextOneRuns) {
  const auto program = two_modules();
  for (int rank = 0; rank < 2; ++rank) {
    for (int count = 1; count < 6; ++count) {
      Group group(program, 2, {});
      group.transport(rank).refuse_after(count);
      std::vector<Result> results;

      EXPECT_EQ(text_of(group.step(4, results)[static_cast<size_t>(rank)]),
                "no memory, on purpose");
      for (int step = 0; step < 2; ++step) {
        for (const auto& error : group.step(4, results)) EXPECT_EQ(text_of(error), "");
        expect_same_as_alone(program, results);
      }
    }
  }
}

TEST(Server, FailureInTheBodyReachesAllRanks) {
  Group group(two_modules(), 2, {});
  group.executor(0).fail_in_module = 0;
  std::vector<Result> results;

  const auto errors = group.step(2, results);

  EXPECT_EQ(text_of(errors[0]), "module 0 fails on purpose");
  EXPECT_THAT(text_of(errors[1]), HasSubstr("rank 0 failed in step 1"));
}

TEST(Server, SaysWhoWaitsForWhatWhenNothingMoves) {
  // Rank 1 never enters the step.
  transport::LoopbackNetwork network(3);
  const auto program = two_modules();
  PatientTransport endpoint(network.endpoint(0), 2);
  const auto other_endpoint = network.endpoint(2);
  ToyExecutor executor(program, 0);
  ToyExecutor other_executor(program, 2);
  Server server(endpoint, executor,
                {.timeout = std::chrono::milliseconds(50),
                 .name = "rank 0",
                 .target_name = [](int64_t target) { return fmt::format("layer.{}", target); }});
  Server other(*other_endpoint, other_executor, {.name = "rank 2"});
  executor.attach(server);
  std::string told;
  std::thread serving([&] {
    try {
      other.serve();
    } catch (const UserCodeError& error) {
      told = error.what();
    }
  });

  try {
    server.drive(
        "step", 1,
        [&](int64_t) {
          ToyExecutor::Tape tape;
          executor.run(0, 1, tape);
        },
        [] { return CallData{}; });
    ADD_FAILURE() << "did not throw";
  } catch (const HostError& error) {
    EXPECT_THAT(error.what(), HasSubstr("microbatch 0 waits for the forward of layer.1 on rank 1"));
    EXPECT_THAT(error.what(), HasSubstr("rank 1 of the pipeline group does not answer"));
    EXPECT_THAT(error.what(), HasSubstr("rank 2 of the pipeline group waits:\n  for rank 0"));
  }
  serving.join();
  EXPECT_THAT(told, HasSubstr("rank 1 of the pipeline group does not answer"));
}

TEST(Server, NamesTheRankThatIsLost) {
  transport::LoopbackNetwork network(2);
  const auto endpoint = network.endpoint(0);
  const auto program = two_modules();
  ToyExecutor executor(program, 0);
  Server server(*endpoint, executor, {});
  executor.attach(server);
  network.lose(1);

  EXPECT_THROW(server.drive(
                   "step", 1,
                   [&](int64_t) {
                     ToyExecutor::Tape tape;
                     executor.run(0, 1, tape);
                   },
                   [] { return CallData{}; }),
               HostError);
}

RankOrder order_of(OrderMode mode) { return {.mode = mode, .work = {}, .patience = {}}; }

TEST(Server, StepThatEndedIsWholeThoughTheDriverHasLeft) {
  for (const bool used : {false, true}) {  // the first step, and one with something to tell
    const auto program = two_modules();
    ToyExecutor executor(program, 1);
    ScriptedTransport transport(1, 2);
    Server server(transport, executor, {});
    executor.attach(server);
    int64_t step = 1;
    if (used) {
      transport.deliver(0, {.step = step, .body = order_of(OrderMode::kFree).encode()});
      transport.deliver(0, {.kind = Kind::kStepEnd, .step = step});
      server.serve();
      ++step;
    }
    transport.deliver(0, {.step = step, .body = order_of(OrderMode::kFree).encode()});
    transport.deliver(0, {.kind = Kind::kStepEnd, .step = step, .body = "collected"});
    transport.leave();

    EXPECT_EQ(server.serve().body, "collected");
  }
}

TEST(Server, WaitsForABackwardBeforeItBeginsAForwardOutOfTurn) {
  /// Says what it does.
  class Log : public Executor {
   public:
    std::vector<std::string> entries;
    CallData forward(const CallId& id, int64_t, CallData, const Purpose&) override {
      entries.push_back(fmt::format("F{}", id.microbatch));
      return {};
    }
    CallData backward(const CallId& id, CallData, const Purpose&) override {
      entries.push_back(fmt::format("B{}", id.microbatch));
      return {};
    }
    void release(int64_t) override {}
    std::string describe(const std::exception_ptr&) override { return {}; }
  };
  Log log;
  ScriptedTransport transport(1, 2);
  Server server(transport, log, {.active_microbatches = 4});
  const auto request = [](Kind kind, int64_t microbatch) {
    const bool forward = kind == Kind::kForward;
    return Envelope{.kind = kind,
                    .step = 1,
                    .microbatch = microbatch,
                    .call = static_cast<uint64_t>(microbatch),
                    .depth = 1,
                    .run = forward ? 1 : 3,
                    .ranks = forward ? 1 : 2,
                    .caller = 0,
                    .route = {{.owner = 1, .target = 0}}};
  };
  transport.deliver(0, {.step = 1, .body = order_of(OrderMode::kFree).encode()});
  for (int64_t microbatch = 0; microbatch < 4; ++microbatch) {
    transport.deliver(0, request(Kind::kForward, microbatch));
  }
  for (int64_t microbatch = 0; microbatch < 4; ++microbatch) {
    transport.deliver_late(0, request(Kind::kBackward, microbatch));
  }
  transport.deliver_late(0, {.kind = Kind::kStepEnd, .step = 1});

  server.serve();

  // Two are open before it waits: the loss of the first is computed elsewhere.
  EXPECT_THAT(log.entries, ElementsAre("F0", "F1", "B0", "F2", "B1", "F3", "B2", "B3"));
}

TEST(Server, NamesTheFailureThatMadeADriverLeaveNotItsLeaving) {
  // The driver's failure lies behind a message that has this rank send something to it.
  const auto program = two_modules();
  ToyExecutor executor(program, 1);
  ScriptedTransport transport(1, 2);
  Server server(transport, executor, {});
  executor.attach(server);
  transport.deliver(0, {.step = 1, .body = order_of(OrderMode::kRecord).encode()});
  transport.deliver(0, {.kind = Kind::kMicrobatchDone, .step = 1});
  transport.deliver(0, {.kind = Kind::kAbort, .step = 1, .body = "rank 0 failed on purpose"});
  transport.leave();

  try {
    server.serve();
    FAIL() << "did not throw";
  } catch (const UserCodeError& error) {
    EXPECT_STREQ(error.what(), "rank 0 failed on purpose");
  }
}

TEST(Server, NamesTheFailureThatMadeAPeerLeaveWhenABodyCallsIt) {
  const auto program = two_modules();
  ToyExecutor executor(program, 0);
  ScriptedTransport transport(0, 2);
  Server server(transport, executor, {});
  executor.attach(server);

  const auto body = [&](int64_t) {
    transport.deliver(1, {.kind = Kind::kAbort, .step = 1, .body = "rank 1 failed on purpose"});
    transport.leave();
    try {
      server.call({{.owner = 1, .target = 1}}, call_data_of(1));
    } catch (const HostError& error) {
      throw std::runtime_error(error.what());  // as after a way through Python
    }
  };
  try {
    server.drive("step", 1, body, [] { return CallData{}; });
    FAIL() << "did not throw";
  } catch (const UserCodeError& error) {
    EXPECT_STREQ(error.what(), "rank 1 failed on purpose");
  }
}

TEST(Server, RefusesACallOutsideAStep) {
  transport::LoopbackNetwork network(2);
  const auto endpoint = network.endpoint(0);
  const auto program = two_modules();
  ToyExecutor executor(program, 0);
  Server server(*endpoint, executor, {});

  EXPECT_THROW(server.call({{.owner = 1, .target = 1}}, call_data_of(1)), InternalError);
  EXPECT_EQ(server.microbatch(), -1);
}

}  // namespace
}  // namespace smp::pipeline::testing
