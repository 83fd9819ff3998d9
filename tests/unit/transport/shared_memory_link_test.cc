// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/shared_memory_link.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "smp_runtime/core/cache_line.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/transport/link_frame.h"
#include "smp_runtime/transport/shared_memory.h"
#include "smp_runtime/transport/shared_ring.h"
#include "smp_runtime/transport/transport.h"
#include "tests/unit/transport/numbered_bytes.h"

namespace smp::transport {
namespace {

using std::chrono::milliseconds;
using Bytes = std::vector<std::byte>;

constexpr uint64_t kAnySource = 0xffffffff00000000U;

/// As the backend makes it of the sender and the user's tag.
uint64_t tag_of(int source, uint32_t tag) { return static_cast<uint64_t>(source) << 32 | tag; }

/// Ranks of one process, of which each moves only when it is told to.
struct Ranks {
  explicit Ranks(int count) {
    std::vector<std::string> names;
    for (int rank = 0; rank < count; ++rank) names.push_back(fmt::format("rank {}", rank));
    for (int rank = 0; rank < count; ++rank) {
      links.push_back(std::make_unique<SharedMemoryLink>(rank, names));
    }
  }

  Link::Handle send(int from, int to, uint32_t tag, const Bytes& bytes) {
    connect(from, to);
    return at(from).send(to, tag_of(from, tag), bytes, nullptr);
  }
  Link::Handle receive(int at_rank, int from, uint32_t tag, Bytes& bytes) {
    return at(at_rank).receive(from, tag_of(from, tag), bytes, 0, nullptr);
  }
  Link::Handle receive_from_any(int at_rank, uint32_t tag, Bytes& bytes) {
    return at(at_rank).receive(-1, tag, bytes, kAnySource, nullptr);
  }
  void connect(int from, int to) {
    if (!at(from).is_connected(to)) at(from).connect(to, "", at(to).address());
  }
  /// Long enough for all that can happen.
  void move() {
    for (int turn = 0; turn < 100; ++turn) {
      for (const auto& link : links) link->wait_for_change(milliseconds(0));
    }
  }
  SharedMemoryLink& at(int rank) { return *links[static_cast<size_t>(rank)]; }

  std::vector<std::unique_ptr<SharedMemoryLink>> links;
};

/// What rank 1 of two writes by hand into the memory of rank 0.
struct ForgedFrames {
  explicit ForgedFrames(const std::string& address)
      : memory(SharedMemory::open(address, std::filesystem::file_size(address))),
        ring(memory.data() + kCacheLineBytes + SharedRing::size_bytes()) {}

  void write(const LinkFrame& frame) {
    EXPECT_EQ(ring.write_some(std::as_bytes(std::span(&frame, 1))), sizeof(frame));
  }

  SharedMemory memory;
  SharedRing ring;
};

std::string error_of(const Link::Handle& message) {
  try {
    static_cast<void>(message->result());
  } catch (const HostError& error) {
    return error.what();
  }
  return "";
}

class MessagesOfSize : public testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(All, MessagesOfSize,
                         testing::Values(0, 1, SharedMemoryLink::kShortBytes,
                                         SharedMemoryLink::kShortBytes + 1, 5'000'011));

TEST_P(MessagesOfSize, ArriveWholeWhoeverComesFirst) {
  Ranks ranks(2);
  const Bytes data = numbered(GetParam());
  Bytes first(data.size()), second(data.size());

  const auto early = ranks.send(0, 1, 7, data);
  ranks.move();
  const auto late = ranks.receive(1, 0, 7, first);
  const auto waiting = ranks.receive(1, 0, 7, second);
  ranks.move();
  EXPECT_FALSE(waiting->done());
  const auto again = ranks.send(0, 1, 7, data);
  ranks.move();

  for (const auto& one : {early, late, waiting, again}) {
    ASSERT_TRUE(one->done());
    EXPECT_EQ(one->result(), tag_of(0, 7));
  }
  EXPECT_EQ(first, data);
  EXPECT_EQ(second, data);
}

TEST_P(MessagesOfSize, AreToldApartByTheirTagsAndKeepTheirOrder) {
  Ranks ranks(2);
  std::vector<Bytes> sent, got(6, Bytes(GetParam()));
  for (uint32_t number = 0; number < 6; ++number) sent.push_back(numbered(GetParam(), 99 * number));
  std::vector<Link::Handle> messages;

  for (uint32_t number = 0; number < 6; ++number) {
    messages.push_back(ranks.send(0, 1, number % 3, sent[number]));
  }
  ranks.move();
  for (const uint32_t number : {2U, 1U, 0U, 3U, 5U, 4U}) {  // within one tag, the first first
    messages.push_back(ranks.receive(1, 0, number % 3, got[number]));
  }
  ranks.move();

  for (const auto& one : messages) EXPECT_TRUE(one->done());
  EXPECT_EQ(got, sent);
}

TEST_P(MessagesOfSize, GoToWhoeverTakesThemFromAnybody) {
  Ranks ranks(3);
  const Bytes data = numbered(GetParam());
  Bytes first(data.size()), second(data.size());

  const auto waiting = ranks.receive_from_any(0, 5, first);
  const auto sent = ranks.send(2, 0, 5, data);
  ranks.move();
  ASSERT_TRUE(waiting->done());
  EXPECT_EQ(waiting->result(), tag_of(2, 5));
  EXPECT_EQ(first, data);

  const auto more = ranks.send(1, 0, 5, data);
  ranks.move();
  const auto late = ranks.receive_from_any(0, 5, second);
  ranks.move();
  ASSERT_TRUE(late->done());
  EXPECT_EQ(late->result(), tag_of(1, 5));
  EXPECT_EQ(second, data);
  EXPECT_TRUE(sent->done() && more->done());
}

TEST_P(MessagesOfSize, OfAnotherSizeAreAnErrorAndTheNextOneIsFine) {
  Ranks ranks(2);
  const Bytes data = numbered(GetParam());
  Bytes other(data.size() + 3, std::byte{9}), next(data.size());

  const auto sent = ranks.send(0, 1, 1, data);
  const auto wrong = ranks.receive(1, 0, 1, other);
  ranks.move();
  const auto sent_next = ranks.send(0, 1, 1, data);
  const auto right = ranks.receive(1, 0, 1, next);
  ranks.move();

  EXPECT_EQ(error_of(wrong),
            fmt::format("rank 0 sent {} bytes where {} were expected", data.size(), other.size()));
  EXPECT_EQ(other, Bytes(other.size(), std::byte{9}));
  EXPECT_TRUE(sent->done() && sent_next->done());
  EXPECT_EQ(error_of(right), "");
  EXPECT_EQ(next, data);
}

TEST(SharedMemoryLink, AReceiveThatIsGivenUpOnTheWayIsNotWrittenAnyMore) {
  Ranks ranks(2);
  const Bytes data = numbered(8'000'000);
  Bytes given_up(data.size()), next(data.size());

  const auto sent = ranks.send(0, 1, 1, data);
  const auto receive = ranks.receive(1, 0, 1, given_up);
  for (int turn = 0; turn < 3; ++turn) {  // some of it, not all
    ranks.at(0).wait_for_change(milliseconds(0));
    ranks.at(1).wait_for_change(milliseconds(0));
  }
  ASSERT_FALSE(receive->done());
  ranks.at(1).cancel(receive);
  const Bytes then = given_up;
  ranks.move();

  EXPECT_EQ(error_of(receive), "cancelled");
  EXPECT_EQ(given_up, then);
  EXPECT_TRUE(sent->done());
  const auto again = ranks.send(0, 1, 1, data);
  const auto received = ranks.receive(1, 0, 1, next);
  ranks.move();
  EXPECT_TRUE(again->done() && received->done());
  EXPECT_EQ(next, data);
}

TEST_P(MessagesOfSize, ThatAreGivenUpBeforeTheyAreTakenDoNoHarm) {
  Ranks ranks(2);
  const Bytes data = numbered(GetParam());
  Bytes unused(data.size()), next(data.size());

  const auto never = ranks.receive(1, 0, 1, unused);
  ranks.at(1).cancel(never);
  const auto given_up = ranks.send(0, 1, 2, data);
  ranks.at(0).cancel(given_up);
  const auto sent = ranks.send(0, 1, 3, data);
  const auto received = ranks.receive(1, 0, 3, next);
  ranks.move();

  EXPECT_EQ(error_of(never), "cancelled");
  EXPECT_EQ(error_of(given_up), "cancelled");
  EXPECT_TRUE(sent->done() && received->done());
  EXPECT_EQ(next, data);
}

TEST(SharedMemoryLink, AReceiverLearnsThatItsSenderHasGivenUp) {
  Ranks ranks(2);
  const Bytes data = numbered(1'000'000);
  Bytes target(data.size());

  const auto sent = ranks.send(0, 1, 1, data);
  ranks.move();
  ranks.at(0).cancel(sent);
  const auto received = ranks.receive(1, 0, 1, target);
  ranks.move();

  EXPECT_EQ(error_of(received), "rank 0 gave up sending");
}

TEST(SharedMemoryLink, APeerWhoseMemoryIsGoneIsAnErrorOfTheSend) {
  Ranks ranks(2);
  const std::string address = ranks.at(1).address();
  ranks.links.pop_back();
  const Bytes data = numbered(10);

  ranks.at(0).connect(1, "", address);
  const auto sent = ranks.at(0).send(1, 0, data, nullptr);

  ASSERT_TRUE(sent->done());
  EXPECT_NE(error_of(sent).find("rank 1 cannot be reached"), std::string::npos);
}

TEST(SharedMemoryLink, DataThatAreAnnouncedLargerThanTheirRoomAreRefused) {
  Ranks ranks(2);
  Bytes room(SharedMemoryLink::kShortBytes + 1);
  const Link::Handle message = ranks.receive(0, 1, 7, room);
  ForgedFrames peer(ranks.at(0).address());
  const auto drive = [&] { ranks.at(0).wait_for_change(milliseconds(0)); };

  peer.write({.kind = LinkFrame::Kind::kRequestToSend,
              .tag = tag_of(1, 7),
              .number = 3,
              .size = room.size()});
  drive();
  peer.write({.kind = LinkFrame::Kind::kData, .number = 3, .size = room.size() + 1});

  EXPECT_THROW(drive(), InternalError);
}

TEST(SharedMemoryLink, AShortMessageThatIsAnnouncedLongIsNotAllocated) {
  Ranks ranks(2);
  ForgedFrames peer(ranks.at(0).address());

  peer.write({.kind = LinkFrame::Kind::kShort, .size = uint64_t{1} << 60});

  EXPECT_THROW(ranks.at(0).wait_for_change(milliseconds(0)), InternalError);
}

TEST(SharedMemoryLink, AWakeEndsAWait) {
  Ranks ranks(1);
  std::atomic<bool> ended{false};
  std::thread waiter([&] {
    ranks.at(0).wait_for_change(std::chrono::minutes(5));
    ended.store(true);
  });

  ranks.at(0).wake();  // it counts, whether the other one waits by now or not
  waiter.join();

  EXPECT_TRUE(ended.load());
}

// Each of three threads sends to all and receives from all, in an order of its own.
TEST(SharedMemoryLink, AllPairsAtOnceGetWhatIsTheirs) {
  constexpr int kRanks = 3, kMessages = 60;
  Ranks ranks(kRanks);
  std::vector<std::string> addresses;
  for (const auto& link : ranks.links) addresses.push_back(link->address());
  std::atomic<int> damaged{0}, late{0}, ready{0};
  const auto size_of = [](int from, int to, int number) {
    std::mt19937 random(static_cast<uint32_t>(10'000 * from + 100 * to + number));
    return (size_t{1} << (random() % 19)) + random() % 7;
  };

  const auto body = [&](int me) {
    SharedMemoryLink& link = ranks.at(me);
    std::vector<Link::Handle> messages;
    std::vector<std::unique_ptr<Bytes>> held;
    struct Expected {
      Bytes* got;
      Bytes wanted;
    };
    std::vector<Expected> expected;
    std::vector<std::pair<int, int>> order;
    for (int peer = 0; peer < kRanks; ++peer) {
      link.connect(peer, "", addresses[static_cast<size_t>(peer)]);
      for (int number = 0; number < kMessages; ++number) order.emplace_back(peer, number);
    }
    std::mt19937 random(static_cast<uint32_t>(me));
    std::shuffle(order.begin(), order.end(), random);
    for (const auto& [peer, number] : order) {
      const auto tag = static_cast<uint32_t>(number);
      held.push_back(std::make_unique<Bytes>(numbered(size_of(me, peer, number), tag)));
      messages.push_back(link.send(peer, tag_of(me, tag), *held.back(), nullptr));
      link.wait_for_change(milliseconds(0));
    }
    std::shuffle(order.begin(), order.end(), random);
    for (const auto& [peer, number] : order) {
      const auto tag = static_cast<uint32_t>(number);
      const size_t size = size_of(peer, me, number);
      held.push_back(std::make_unique<Bytes>(size));
      expected.push_back({.got = held.back().get(), .wanted = numbered(size, tag)});
      messages.push_back(link.receive(peer, tag_of(peer, tag), *held.back(), 0, nullptr));
      link.wait_for_change(milliseconds(0));
    }
    const auto deadline = Clock::now() + std::chrono::minutes(2);
    const auto all_done = [&] {
      return std::all_of(messages.begin(), messages.end(),
                         [](const auto& one) { return one->done(); });
    };
    while (!all_done() && Clock::now() < deadline) link.wait_for_change(milliseconds(50));
    if (!all_done()) ++late;
    for (const Expected& one : expected) damaged += *one.got == one.wanted ? 0 : 1;
    // A link moves only while its thread waits: the others may still want something of this one.
    ++ready;
    while (ready.load() < kRanks && Clock::now() < deadline) link.wait_for_change(milliseconds(1));
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(late.load(), 0);
  EXPECT_EQ(damaged.load(), 0);
}

}  // namespace
}  // namespace smp::transport
