// SPDX-License-Identifier: Apache-2.0
// Ranks of several hosts as detectors of one process, over loopback.
#include "smp_runtime/transport/fabric/failure_detector.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/tcp.h"

namespace smp::transport {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
using testing::ThrowsMessage;
using namespace std::chrono_literals;

WaitLimit within(std::chrono::milliseconds time) { return WaitLimit::after(time, "connecting"); }

/// A rank, and what its detector says.
class Rank {
 public:
  explicit Rank(int number) : number_(number) {}

  [[nodiscard]] FailureDetector::Peer as_peer() const {
    return {
        .rank = number_, .name = fmt::format("rank {}", number_), .address = detector->address()};
  }
  /// Waits for the first failure.
  std::string failure() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, 20s, [this] { return !failures_.empty(); });
    return failures_.empty() ? "" : failures_.front();
  }
  [[nodiscard]] std::vector<std::string> failures() {
    const std::lock_guard lock(mutex_);
    return failures_;
  }

 private:
  void note(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    failures_.push_back(reason);
    changed_.notify_all();
  }

  int number_;
  std::mutex mutex_;  // guards failures_
  std::condition_variable changed_;
  std::vector<std::string> failures_;

 public:
  std::unique_ptr<FailureDetector> detector = std::make_unique<FailureDetector>(
      "127.0.0.1", number_, nullptr, [this](const std::string& reason) { note(reason); });
};

using Ranks = std::vector<std::unique_ptr<Rank>>;

/// Calls `action` for all ranks at once.
template <typename Action>
void each(const Ranks& ranks, Action action) {
  std::vector<std::thread> threads;
  for (const auto& rank : ranks) threads.emplace_back([&] { action(*rank); });
  for (std::thread& thread : threads) thread.join();
}

Ranks connected(int count,
                decltype(&FailureDetector::connect) connect = &FailureDetector::connect) {
  Ranks ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(std::make_unique<Rank>(i));
  each(ranks, [&](Rank& mine) {
    std::vector<FailureDetector::Peer> peers;
    for (const auto& rank : ranks) {
      if (rank.get() != &mine) peers.push_back(rank->as_peer());
    }
    (*mine.detector.*connect)(peers, within(20s), {});
  });
  return ranks;
}

/// First words of a rank: a kind, the size of the nonce and the rank.
std::string hello_of(uint32_t rank, const std::string& nonce) {
  const uint32_t words[] = {1, static_cast<uint32_t>(nonce.size()), rank, 0};
  return std::string(reinterpret_cast<const char*>(words), sizeof(words)) + nonce;
}

/// Connects by hand to a detector and says hello as `rank`.
tcp::Connection connect_by_hand(const FailureDetector& detector, uint32_t rank,
                                const std::string& nonce_prefix = "") {
  std::istringstream words(detector.address());
  std::string host;
  std::string nonce;
  int port = 0;
  words >> host >> port >> nonce;
  nonce.replace(0, nonce_prefix.size(), nonce_prefix);
  tcp::Connection connection = tcp::Connection::open(tcp::resolve(host, port), 5s);
  connection.write(hello_of(rank, nonce), Clock::now() + 5s);
  return connection;
}

TEST(FailureDetector, RanksThatLeaveWithFinAreNoFailure) {
  const Ranks ranks = connected(3);

  each(ranks, [](Rank& rank) {
    rank.detector->completed(4);
    rank.detector->leave(within(20s));
    rank.detector.reset();
  });

  for (const auto& rank : ranks) EXPECT_THAT(rank->failures(), IsEmpty());
}

TEST(FailureDetector, ARankWaitsForThoseThatDidNotDoItsCollectives) {
  const Ranks ranks = connected(2);
  ranks[0]->detector->completed(2);
  ranks[1]->detector->completed(1);

  ranks[0]->detector->leave(within(50ms));  // in vain: collective 1 may still be on its way
  ranks[1]->detector->completed(2);
  ranks[0]->detector->leave(within(20s));

  EXPECT_NO_THROW(ranks[1]->detector->throw_if_left(1, "all_reduce"));
  EXPECT_THAT([&] { ranks[1]->detector->throw_if_left(2, "all_reduce"); },
              ThrowsMessage<HostError>(StartsWith("all_reduce: rank 0 has left the group")));
  EXPECT_THAT(ranks[0]->failures(), IsEmpty());
}

TEST(FailureDetector, ARankThatEndsWithoutFinIsNamed) {
  const Ranks ranks = connected(3);

  ranks[1]->detector.reset();

  for (const int other : {0, 2}) {
    EXPECT_THAT(ranks[other]->failure(),
                StartsWith("rank 1 is gone: its connection ended (closed)"));
    EXPECT_THAT(ranks[other]->detector->failure_of(1), StartsWith("its connection ended"));
    EXPECT_EQ(ranks[other]->detector->failure_of(2 - other), "");
  }
}

/// As a rank that has forked workers and is killed: they live on, and the kernel closes its files.
TEST(FailureDetector, ARankThatEndsIsNamedThoughAProcessThatItForkedLivesOn) {
  Rank watcher(0);
  std::array<int, 2> lives{};  // never written: the worker reads until this test closes it
  ASSERT_EQ(pipe2(lives.data(), O_CLOEXEC), 0);
  const std::string watchers = watcher.detector->address();
  const pid_t killed = fork();
  if (killed == 0) {
    close(lives[1]);
    FailureDetector detector("127.0.0.1", 1, nullptr, [](const std::string&) {});
    detector.connect({{.rank = 0, .name = "rank 0", .address = watchers}}, within(20s));
    if (fork() == 0) {
      char byte = 0;
      _exit(read(lives[0], &byte, 1) == 0 ? 0 : 1);
    }
    raise(SIGKILL);
  }
  close(lives[0]);
  watcher.detector->connect({{.rank = 1, .name = "rank 1", .address = ""}}, within(20s));

  EXPECT_THAT(watcher.failure(), StartsWith("rank 1 is gone: its connection ended"));

  close(lives[1]);
  int status = 0;
  waitpid(killed, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
}

TEST(FailureDetector, APeerThatLeavesIsToldOf) {
  std::promise<int> left;
  FailureDetector stays(
      "127.0.0.1", 0, nullptr, [](const std::string&) {},
      [&left](int rank) { left.set_value(rank); });
  FailureDetector leaves("127.0.0.1", 7, nullptr, [](const std::string&) {});
  std::thread connects([&] {
    leaves.connect({{.rank = 0, .name = "rank 0", .address = stays.address()}}, within(20s));
  });
  stays.connect({{.rank = 7, .name = "rank 7", .address = ""}}, within(20s));
  connects.join();

  leaves.leave(within(20s));

  EXPECT_EQ(left.get_future().get(), 7);
}

TEST(FailureDetector, AReasonReachesEveryPeer) {
  const Ranks ranks = connected(3);

  ranks[2]->detector->tell("out of memory");

  EXPECT_EQ(ranks[0]->failure(), "out of memory");
  EXPECT_EQ(ranks[1]->failure(), "out of memory");
}

TEST(FailureDetector, StrangersDoNotCount) {
  Rank rank(0);
  Rank peer(1);
  const tcp::Connection stranger = connect_by_hand(*rank.detector, 1, "????");
  { const tcp::Connection gone = connect_by_hand(*rank.detector, 1, "????"); }

  std::thread connects([&] { peer.detector->connect({rank.as_peer()}, within(20s)); });
  rank.detector->connect({peer.as_peer()}, within(20s));
  connects.join();

  rank.detector->tell("hello");
  EXPECT_EQ(peer.failure(), "hello");
}

TEST(FailureDetector, StrangersWhoSayNothingDelayNobody) {
  Rank rank(0);
  Rank peer(1);
  std::istringstream words(rank.detector->address());
  std::string host;
  int port = 0;
  words >> host >> port;
  std::vector<tcp::Connection> silent;
  for (int i = 0; i < 5; ++i) silent.push_back(tcp::Connection::open(tcp::resolve(host, port), 5s));
  silent.back().write("one", Clock::now() + 5s);

  const auto begin = Clock::now();
  std::thread connects([&] { peer.detector->connect({rank.as_peer()}, within(20s)); });
  rank.detector->connect({peer.as_peer()}, within(20s));
  connects.join();

  EXPECT_LT(Clock::now() - begin, 5s);  // 10 s for each of them if they were heard in turn
}

TEST(FailureDetector, UnderASecretARankProvesThatItIsOfTheJob) {
  const JobSecret secret = JobSecret::draw();
  const auto nothing = [](const std::string&) {};
  FailureDetector listens("127.0.0.1", 0, &secret, nothing);
  FailureDetector peer("127.0.0.1", 1, &secret, nothing);
  const JobSecret other = JobSecret::draw();
  FailureDetector stranger("127.0.0.1", 1, &other, nothing);
  const FailureDetector::Peer first{.rank = 0, .name = "rank 0", .address = listens.address()};

  const tcp::Connection reader = connect_by_hand(listens, 1);  // of the nonce in the store
  stranger.connect({first}, within(20s));                      // knows another secret
  EXPECT_THAT(
      [&] { listens.connect({{.rank = 1, .name = "rank 1", .address = ""}}, within(500ms)); },
      ThrowsMessage<HostError>(HasSubstr(" for rank 1; ")));

  FailureDetector again("127.0.0.1", 0, &secret, nothing);
  std::thread connects([&] {
    peer.connect({{.rank = 0, .name = "rank 0", .address = again.address()}}, within(20s));
  });
  again.connect({{.rank = 1, .name = "rank 1", .address = ""}}, within(20s));
  connects.join();
}

TEST(FailureDetector, WhoDoesNotComeIsNamed) {
  Rank rank(1);
  const std::string free_port = fmt::format("{}", tcp::Listener({"127.0.0.1"}, 0).port());

  EXPECT_THAT(
      [&] {
        rank.detector->connect({{.rank = 2, .name = "rank 2", .address = ""}}, within(100ms));
      },
      ThrowsMessage<HostError>(AllOf(StartsWith("connecting: waited 100 ms at 127.0.0.1 port "),
                                     HasSubstr(" for rank 2; may the hosts"))));
  EXPECT_THAT(
      [&] {
        rank.detector->connect(
            {{.rank = 0, .name = "rank 0", .address = "127.0.0.1 " + free_port + " nonce"}},
            within(200ms));
      },
      ThrowsMessage<HostError>(StartsWith("connecting: waited 200 ms to reach rank 0 at 127.0.0.1 "
                                          "port " +
                                          free_port)));
}

TEST(FailureDetector, APeerThatDoesNotReadBlocksNobody) {
  Rank rank(0);
  const tcp::Connection silent = connect_by_hand(*rank.detector, 1);
  rank.detector->connect({{.rank = 1, .name = "rank 1", .address = ""}}, within(20s));
  const std::string reason(4096, 'x');

  const auto begin = Clock::now();
  for (int i = 0; i < 20'000; ++i) rank.detector->tell(reason);  // far more than buffers hold
  rank.detector->completed(1);
  EXPECT_NO_THROW(rank.detector->throw_if_left(1, "all_reduce"));

  EXPECT_LT(Clock::now() - begin, 20s);  // 11 hours if each waited 2 s
}

TEST(FailureDetector, WhatAPeerDidNotReadAtOnceArrives) {
  const Ranks ranks = connected(2);
  constexpr std::size_t kReasons = 200;  // 800 KB: more than a socket holds
  for (std::size_t i = 0; i < kReasons; ++i) ranks[0]->detector->tell(std::string(4096, 'x'));

  const auto until = Clock::now() + 20s;
  while (ranks[1]->failures().size() < kReasons && Clock::now() < until) {
    std::this_thread::sleep_for(1ms);
  }

  EXPECT_THAT(ranks[1]->failures(), testing::SizeIs(kReasons));
}

/// Ranks with a connection to the first one each.
Ranks connected_by_hub(int count) { return connected(count, &FailureDetector::connect_by_hub); }

/// Sockets of this process.
int sockets() {
  int count = 0;
  for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    count += std::filesystem::read_symlink(file, gone).string().starts_with("socket:") ? 1 : 0;
  }
  return count;
}

TEST(FailureDetector, ByAHubEachRankHasOneConnection) {
  constexpr int kRanks = 12;
  const int before = sockets();

  const Ranks ranks = connected_by_hub(kRanks);

  EXPECT_EQ(sockets() - before, 2 * (kRanks - 1)) << "both ends of each";
}

TEST(FailureDetector, AHubTellsAllOfAnEnd) {
  const Ranks ranks = connected_by_hub(4);

  ranks[2]->detector.reset();

  for (const int other : {0, 1, 3}) {
    EXPECT_THAT(ranks[other]->failure(), StartsWith("rank 2 is gone: its connection ended"));
    EXPECT_THAT(ranks[other]->detector->failure_of(2), StartsWith("its connection ended"));
    EXPECT_EQ(ranks[other]->detector->failure_of(other == 1 ? 3 : 1), "");
  }
}

TEST(FailureDetector, AllNoticeTheEndOfTheHub) {
  const Ranks ranks = connected_by_hub(4);

  ranks[0]->detector.reset();

  for (const int other : {1, 2, 3}) {
    EXPECT_THAT(ranks[other]->failure(), StartsWith("rank 0 is gone: its connection ended"));
  }
}

TEST(FailureDetector, ThroughAHubAReasonReachesEveryPeerBeforeTheEndOfWhoToldIt) {
  const Ranks ranks = connected_by_hub(4);

  ranks[3]->detector->tell("out of memory");
  ranks[3]->detector.reset();

  for (const int other : {0, 1, 2}) {
    EXPECT_EQ(ranks[other]->failure(), "out of memory");
    EXPECT_EQ(ranks[other]->detector->failure_of(3), "") << "its end is no news";
  }
}

TEST(FailureDetector, ThroughAHubARankWaitsForAllThatDidNotDoItsCollectives) {
  const Ranks ranks = connected_by_hub(4);
  for (const auto& rank : ranks) rank->detector->completed(2);
  ranks[3]->detector->completed(1);

  const auto begin = Clock::now();
  ranks[1]->detector->leave(within(200ms));  // in vain: rank 3 has not done the second
  EXPECT_GE(Clock::now() - begin, 200ms);
  ranks[3]->detector->completed(2);
  ranks[1]->detector->leave(within(20s));

  EXPECT_LT(Clock::now() - begin, 10s);
  const auto has_heard = [&](const FailureDetector& detector) {
    try {
      detector.throw_if_left(2, "all_reduce");
      return false;
    } catch (const HostError& error) {
      EXPECT_THAT(error.what(), StartsWith("all_reduce: rank 1 has left the group"));
      return true;
    }
  };
  for (const int other : {0, 2, 3}) {
    EXPECT_NO_THROW(ranks[other]->detector->throw_if_left(1, "all_reduce"));
    while (!has_heard(*ranks[other]->detector) && Clock::now() < begin + 20s) {
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_TRUE(has_heard(*ranks[other]->detector)) << other;
  }
}

TEST(FailureDetector, ThroughAHubRanksLeaveInAnyOrderAndNoneFails) {
  const Ranks ranks = connected_by_hub(6);

  each(ranks, [](Rank& rank) {
    rank.detector->completed(4);
    rank.detector->leave(within(20s));
    rank.detector.reset();
  });

  for (const auto& rank : ranks) EXPECT_THAT(rank->failures(), IsEmpty());
}

TEST(FailureDetector, AHubNamesWhoDidNotCome) {
  Rank hub(0);
  Rank spoke(1);
  const FailureDetector::Peer absent{.rank = 2, .name = "rank 2", .address = ""};

  std::thread connects([&] {
    EXPECT_THAT(
        [&] {
          spoke.detector->connect_by_hub({hub.as_peer(), absent}, within(20s));
        },
        ThrowsMessage<HostError>(
            StartsWith("connecting: rank 0 has ended the connection (closed)")));
  });
  EXPECT_THAT(
      [&] {
        hub.detector->connect_by_hub({spoke.as_peer(), absent}, within(500ms));
      },
      ThrowsMessage<HostError>(HasSubstr(" for rank 2; may the hosts")));
  hub.detector.reset();
  connects.join();
}

}  // namespace
}  // namespace smp::transport
