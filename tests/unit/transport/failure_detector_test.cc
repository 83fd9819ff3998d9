// SPDX-License-Identifier: Apache-2.0
// Ranks of several hosts as detectors of one process, over loopback.
#include "smp_runtime/transport/fabric/failure_detector.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <csignal>
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

Ranks connected(int count) {
  Ranks ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(std::make_unique<Rank>(i));
  each(ranks, [&](Rank& mine) {
    std::vector<FailureDetector::Peer> peers;
    for (const auto& rank : ranks) {
      if (rank.get() != &mine) peers.push_back(rank->as_peer());
    }
    mine.detector->connect(peers, within(20s));
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

TEST(FailureDetector, APeerThatDoesNotReadBlocksNobodyForLong) {
  Rank rank(0);
  const tcp::Connection silent = connect_by_hand(*rank.detector, 1);
  rank.detector->connect({{.rank = 1, .name = "rank 1", .address = ""}}, within(20s));
  const std::string reason(4096, 'x');

  Clock::duration longest{};
  for (int i = 0; i < 100'000 && longest < 1s; ++i) {  // until no buffer has room any more
    const auto begin = Clock::now();
    rank.detector->tell(reason);
    longest = std::max(longest, Clock::now() - begin);
  }

  EXPECT_GT(longest, 1s);
  EXPECT_LT(longest, 10s);
}

TEST(FailureDetector, CollectivesGoOnWhileAPeerDoesNotRead) {
  Rank rank(0);
  const tcp::Connection silent = connect_by_hand(*rank.detector, 1);
  rank.detector->connect({{.rank = 1, .name = "rank 1", .address = ""}}, within(20s));
  std::atomic<int> begun{0};
  std::atomic<int> ended{0};
  std::atomic<bool> seen{false};
  std::thread teller([&] {
    const std::string reason(4096, 'x');
    while (!seen && begun < 100'000) {
      ++begun;
      rank.detector->tell(reason);
      ++ended;
    }
  });

  while (!seen && ended < 100'000) {
    const int blocked = begun;
    std::this_thread::sleep_for(100ms);
    rank.detector->completed(1);
    rank.detector->throw_if_left(1, "all_reduce");
    seen = blocked > 0 && begun == blocked && ended == blocked - 1;  // one call, before and after
  }
  teller.join();

  EXPECT_TRUE(seen);
}

}  // namespace
}  // namespace smp::transport
