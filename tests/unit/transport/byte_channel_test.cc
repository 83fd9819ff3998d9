// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/byte_channel.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/file.h"
#include "smp_runtime/transport/fabric/fabric_channel.h"
#include "tests/unit/transport/numbered_bytes.h"
#include "tests/unit/transport/ring_pair.h"

namespace smp::transport {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Bytes = std::vector<std::byte>;
using Message = std::vector<Bytes>;

/// Two ends in one process.
struct Pair {
  virtual ~Pair() = default;
  /// As if the process of the right one had ended.
  virtual void end_right() = 0;
  std::unique_ptr<ByteChannel> left, right;
};

struct SharedMemoryPair : Pair {
  SharedMemoryPair() {
    left = rings.end(0);
    right = rings.end(1);
  }
  void end_right() override { left = rings.end(0, ended_process()); }

  RingPair rings;
};

/// Each end as a process of its own host would have it.
struct FabricPair : Pair {
  struct End {
    explicit End(int number)
        : rank(number),
          link({.provider = "tcp", .address = "127.0.0.1"}),
          detector(std::make_unique<FailureDetector>(
              "127.0.0.1", number, nullptr, [this](const std::string&) { link.wake(); })) {}

    std::unique_ptr<ByteChannel> connect(const End& peer) {
      link.connect(peer.rank, "the peer", peer.link.address());
      detector->connect(
          {{.rank = peer.rank, .name = "the peer", .address = peer.detector->address()}},
          WaitLimit::after(std::chrono::seconds(30), "connecting"));
      return std::make_unique<FabricChannel>(link, *detector,
                                             FabricChannel::Ends{.rank = rank, .peer = peer.rank});
    }

    int rank;
    FabricLink link;
    std::unique_ptr<FailureDetector> detector;
  };

  FabricPair() {
    std::thread other([&] { right = ends[1].connect(ends[0]); });
    left = ends[0].connect(ends[1]);
    other.join();
  }
  ~FabricPair() override {
    left.reset();
    right.reset();
  }
  void end_right() override { ends[1].detector.reset(); }

  End ends[2] = {End(0), End(1)};
};

using MakePair = std::function<std::unique_ptr<Pair>()>;

class ByteChannelTest : public ::testing::TestWithParam<MakePair> {
 protected:
  static std::vector<ByteChannel::Part> parts_of(const Message& message) {
    return {message.begin(), message.end()};
  }
  void send(const Message& message) const {
    const auto owned = std::make_shared<Message>(message);
    pair->left->send(parts_of(*owned), owned);
  }
  [[nodiscard]] bool send_at_once(const Message& message) const {
    return send_at_once(*pair->left, message);
  }
  [[nodiscard]] static bool send_at_once(ByteChannel& channel, const Message& message) {
    const auto owned = std::make_shared<Message>(message);
    return channel.send_at_once(parts_of(*owned), owned);
  }
  [[nodiscard]] Message receive(const Message& like) const { return receive(*pair->right, like); }
  /// A message with parts as large as those of `like`: the first by itself, then the others.
  [[nodiscard]] static Message receive(ByteChannel& channel, const Message& like) {
    const auto message = std::make_shared<Message>();
    for (const Bytes& part : like) message->emplace_back(part.size());
    const std::vector<ByteChannel::Room> rooms{message->begin(), message->end()};
    channel.receive_header(rooms.at(0));
    const size_t some = std::min<size_t>(rooms.size(), 2);
    channel.receive(std::span(rooms).subspan(1, some - 1), message);
    channel.receive(std::span(rooms).subspan(some), message);
    return *message;
  }

  std::unique_ptr<Pair> pair = GetParam()();
};

INSTANTIATE_TEST_SUITE_P(OverRings, ByteChannelTest,
                         testing::Values([] { return std::make_unique<SharedMemoryPair>(); }));
INSTANTIATE_TEST_SUITE_P(OverAFabric, ByteChannelTest,
                         testing::Values([] { return std::make_unique<FabricPair>(); }));

TEST_P(ByteChannelTest, LargePartsArriveAsTheyWere) {
  const Message message{numbered(24), numbered(10'000), numbered(3'000'011), {}, numbered(56)};
  std::thread sends([&] { send(message); });

  EXPECT_EQ(receive(message), message);
  sends.join();
}

TEST_P(ByteChannelTest, PartsArriveWholeWhetherAPacketHasRoomForThemOrNot) {
  constexpr size_t kHeader = 24;
  for (const size_t first : {0, 3000, 4000, 4071, 4072, 4073, 4096, 6000}) {
    for (const size_t other : {0, 1, 64, 1000, 3900}) {
      const Message message{numbered(kHeader), numbered(first), numbered(other), numbered(9),
                            numbered(other, 7)};
      ASSERT_TRUE(send_at_once(message));
      ASSERT_EQ(receive(message), message) << first << ", " << other;
    }
  }
}

TEST_P(ByteChannelTest, MessagesKeepTheirOrderWhateverTheirSize) {
  constexpr uint32_t kMessages = 60;
  const auto message = [](uint32_t number) {
    return Message{numbered(8, number), numbered(number % 3 == 0 ? 5 : 100'000, number)};
  };
  std::thread sends([&] {
    for (uint32_t number = 0; number < kMessages; ++number) {
      const Message next = message(number);
      if (!send_at_once(next)) send(next);
    }
  });

  for (uint32_t number = 0; number < kMessages; ++number) {
    ASSERT_EQ(receive(message(number)), message(number)) << number;
  }
  sends.join();
}

TEST_P(ByteChannelTest, ACreditReachesTheSenderBesideItsMessages) {
  const Message message{numbered(5)};
  std::thread receives([&] {
    EXPECT_EQ(receive(message), message);
    pair->right->give_credit();
  });
  send(message);
  pair->left->await_credit(WaitLimit::after(std::chrono::seconds(30), "a credit"));
  receives.join();

  EXPECT_THAT(
      [&] {
        pair->left->await_credit(WaitLimit::after(std::chrono::milliseconds(50), "a credit"));
      },
      ThrowsMessage<HostError>(HasSubstr("50 ms")));
}

TEST_P(ByteChannelTest, AnEndedPeerIsAnError) {
  const Message message{numbered(24), numbered(100)};
  ASSERT_TRUE(send_at_once(*pair->right, message));
  EXPECT_EQ(receive(*pair->left, message), message);

  pair->end_right();

  EXPECT_THAT([&] { (void)receive(*pair->left, message); },
              ThrowsMessage<HostError>(HasSubstr("ended")));
}

TEST(SharedMemoryChannelTest, WhatAnEndedPeerWroteIsReadFirst) {
  SharedMemoryPair pair;
  const Bytes header = numbered(24);
  const ByteChannel::Part part(header);
  ASSERT_TRUE(pair.right->send_at_once(std::span(&part, 1), nullptr));

  pair.end_right();

  Bytes got(24);
  pair.left->receive_header(got);
  EXPECT_EQ(got, header);
  EXPECT_THAT([&] { pair.left->receive_header(got); },
              ThrowsMessage<HostError>(HasSubstr("has ended; see its output")));
}

/// Whoever reaches an endpoint's port can send to it, under any tag.
TEST(FabricChannelTest, AStrangersPacketIsNotTakenForThePeers) {
  FabricPair pair;
  FabricLink stranger({.provider = "tcp", .address = "127.0.0.1"});
  stranger.connect(0, "the left end", pair.ends[0].link.address());
  const Bytes evil = numbered(24, 100);
  constexpr uint64_t kFirstPacketOfTheRight = uint64_t{1} << 60 | uint64_t{1} << 48;

  const auto sent = stranger.send(0, kFirstPacketOfTheRight, evil);
  stranger.wait(std::span(&sent, 1), WaitLimit::after(std::chrono::seconds(20), "a stranger"),
                [] {});
  const Bytes header = numbered(24);
  const ByteChannel::Part part(header);
  ASSERT_TRUE(pair.right->send_at_once(std::span(&part, 1), nullptr));

  Bytes got(24);
  pair.left->receive_header(got);
  EXPECT_EQ(got, header);
}

std::ptrdiff_t open_files() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

/// As whoever scans the network for ports does. libfabric took such a connection for one that has
/// sent nothing yet, and looked at it again without a pause, for ever.
TEST(FabricChannelTest, ConnectionsOfStrangersAreClosed) {
  FabricPair pair;
  sockaddr_in address{};
  std::memcpy(&address, pair.ends[0].link.address().data(), sizeof(address));
  const std::ptrdiff_t before = open_files();
  const auto expect_files = [](std::ptrdiff_t count) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (open_files() != count && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(open_files(), count);
  };

  for (const std::string_view sent :
       {"", "short", "a text that is no header of libfabric's at all"}) {
    {
      const FileDescriptor stranger(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      ASSERT_EQ(
          ::connect(stranger.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
          0);
      expect_files(before + 2);  // both ends
      ASSERT_EQ(write_all(stranger.get(), sent), 0);
    }
    expect_files(before);
  }
}

TEST_P(ByteChannelTest, AbortEndsAReceiveThatWaits) {
  std::thread aborts([&] { pair->right->abort(); });

  EXPECT_THAT([&] { (void)receive({numbered(1)}); }, ThrowsMessage<HostError>(HasSubstr("closed")));
  aborts.join();
}

}  // namespace
}  // namespace smp::transport
