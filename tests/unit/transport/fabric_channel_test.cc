// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/channel/fabric_channel.h"

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/transport/channel/tensor_payload.h"

namespace smp::transport {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// One end, as a process of its own host would have it.
struct End {
  explicit End(int number)
      : rank(number),
        link({.provider = "tcp", .address = "127.0.0.1"}),
        detector(std::make_unique<FailureDetector>("127.0.0.1", number,
                                                   [this](const std::string&) { link.wake(); })) {}

  void connect(const End& peer) {
    link.connect(peer.rank, "the peer", peer.link.address());
    detector->connect(
        {{.rank = peer.rank, .name = "the peer", .address = peer.detector->address()}},
        WaitLimit::after(std::chrono::seconds(30), "connecting"));
    channel = std::make_unique<FabricChannel>(link, *detector,
                                              FabricChannel::Ends{.rank = rank, .peer = peer.rank});
  }

  int rank;
  FabricLink link;
  std::unique_ptr<FailureDetector> detector;
  std::unique_ptr<FabricChannel> channel;
};

class FabricChannelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::thread other([&] { right.connect(left); });
    left.connect(right);
    other.join();
  }

  static PackedMessage message(const std::string& bytes, std::vector<at::Tensor> tensors = {}) {
    StagedCopies copies;
    return pack(
        outgoing({.bytes = bytes, .payload = std::make_shared<TensorPayload>(std::move(tensors))}),
        std::nullopt, copies);
  }

  static Message take(FabricChannel& channel) {
    std::optional<ArrivingMessage> arrived = channel.receive();
    StagedCopies copies;
    return arrived ? std::move(*arrived).finish(0, -1, copies) : Message{.bytes = "fin"};
  }

  End left{0};
  End right{1};
};

TEST_F(FabricChannelTest, TensorsArriveAsTheyWere) {
  const std::string head(10'000, 'h');  // more than a frame holds
  const std::vector<at::Tensor> tensors{at::arange(300'000, at::kFloat).view({3, -1}),
                                        at::empty({0, 4}, at::kLong), at::arange(7, at::kDouble),
                                        at::arange(12, at::kInt).view({3, 4}).t()};
  std::thread sends([&] { left.channel->send(message(head, tensors)); });

  const Message arrived = take(*right.channel);
  sends.join();

  EXPECT_EQ(arrived.bytes, head);
  const std::vector<at::Tensor> received = take_tensors(arrived.payload);
  ASSERT_EQ(received.size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_TRUE(received[i].equal(tensors[i]) && received[i].dtype() == tensors[i].dtype()) << i;
    EXPECT_TRUE(received[i].is_contiguous());
  }
}

TEST_F(FabricChannelTest, TensorsThatComeApartLeaveTheOthersTheirPlaces) {
  // As a rank packs the first and third of a GPU: they are named in the head and not sent here.
  const std::vector<at::Tensor> tensors{at::arange(3), at::arange(7), at::arange(2), at::arange(5)};
  PackedMessage mixed = message("mixed", tensors);
  const size_t meta_bytes = mixed.frame.meta_bytes / tensors.size();
  for (const size_t apart : {0, 2}) {
    const auto device = static_cast<int64_t>(at::kCUDA);  // the second number of a meta
    std::memcpy(mixed.head.data() + mixed.frame.message_bytes + apart * meta_bytes + sizeof(device),
                &device, sizeof(device));
  }
  mixed.tensors = {tensors[1], tensors[3]};
  mixed.frame.apart_device = static_cast<int16_t>(at::kCUDA);
  ASSERT_TRUE(left.channel->send_at_once(mixed));

  std::optional<ArrivingMessage> arrived = right.channel->receive();

  ASSERT_TRUE(arrived.has_value());
  const std::vector<Received>& received = arrived->tensors();
  ASSERT_EQ(received.size(), tensors.size());
  for (const size_t apart : {0, 2}) EXPECT_FALSE(received[apart].tensor.defined());
  for (const size_t whole : {1, 3}) EXPECT_TRUE(received[whole].tensor.equal(tensors[whole]));
}

TEST_F(FabricChannelTest, TensorsArriveWholeWhetherTheFrameHasRoomForThemOrNot) {
  for (const size_t head : {0, 3000, 4000, 4063, 4064, 4065, 4096, 6000}) {
    for (const int64_t bytes : {0, 1, 64, 1000, 3900}) {
      const std::vector<at::Tensor> tensors{at::arange(bytes, at::kByte), at::arange(9, at::kByte),
                                            at::arange(bytes, at::kByte)};
      ASSERT_TRUE(left.channel->send_at_once(message(std::string(head, 'h'), tensors)));

      const Message arrived = take(*right.channel);

      ASSERT_EQ(arrived.bytes, std::string(head, 'h'));
      const std::vector<at::Tensor> received = take_tensors(arrived.payload);
      ASSERT_EQ(received.size(), tensors.size());
      for (size_t i = 0; i < tensors.size(); ++i) EXPECT_TRUE(received[i].equal(tensors[i]));
    }
  }
}

TEST_F(FabricChannelTest, MessagesKeepTheirOrderWhateverTheirSize) {
  constexpr int kMessages = 200;
  std::thread sends([&] {
    for (int i = 0; i < kMessages; ++i) {
      const PackedMessage next =
          message(std::to_string(i), {at::arange(i, i + (i % 3 == 0 ? 5 : 50'000))});
      if (!left.channel->send_at_once(next)) left.channel->send(next);
    }
    left.channel->send(fin());
  });

  for (int i = 0; i < kMessages; ++i) {
    const Message arrived = take(*right.channel);
    ASSERT_EQ(arrived.bytes, std::to_string(i));
    EXPECT_TRUE(
        take_tensors(arrived.payload).at(0).equal(at::arange(i, i + (i % 3 == 0 ? 5 : 50'000))));
  }
  EXPECT_EQ(take(*right.channel).bytes, "fin");
  sends.join();
}

TEST_F(FabricChannelTest, ACreditReachesTheSenderBesideItsMessages) {
  std::thread receives([&] {
    EXPECT_EQ(take(*right.channel).bytes, "frame");
    right.channel->give_credit();
  });
  left.channel->send(message("frame"));
  left.channel->await_credit(WaitLimit::after(std::chrono::seconds(30), "a credit"));
  receives.join();

  EXPECT_THAT(
      [&] {
        left.channel->await_credit(WaitLimit::after(std::chrono::milliseconds(50), "a credit"));
      },
      ThrowsMessage<HostError>(HasSubstr("a credit: waited 50 ms")));
}

TEST_F(FabricChannelTest, APeerThatEndsWithoutFinIsNamed) {
  std::thread ends([&] { right.detector.reset(); });

  EXPECT_THAT([&] { take(*left.channel); },
              ThrowsMessage<HostError>(HasSubstr("its connection ended (closed)")));
  ends.join();
  EXPECT_THROW((void)left.channel->send_at_once(message("x")), HostError);
}

TEST_F(FabricChannelTest, AbortEndsAReceiveThatWaits) {
  std::thread aborts([&] { left.channel->abort(); });

  EXPECT_THAT([&] { take(*left.channel); }, ThrowsMessage<HostError>(HasSubstr("closed")));
  aborts.join();
}

}  // namespace
}  // namespace smp::transport
