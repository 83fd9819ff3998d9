// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/nccl/nccl_channel.h"

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
#include "smp_runtime/transport/channel/message_channel.h"
#include "smp_runtime/transport/channel/tensor_payload.h"
#include "tests/unit/transport/fake_nccl.h"
#include "tests/unit/transport/ring_pair.h"

namespace smp::transport {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// Two ends in one process: frames through rings, tensors of the CPU as if it were a device.
class NcclChannelTest : public ::testing::Test {
 protected:
  explicit NcclChannelTest(milliseconds timeout = std::chrono::minutes(1)) {
    const NcclId there = library.new_id();
    const NcclId back = library.new_id();
    left = make(0, there, back, timeout);
    right = make(1, back, there, timeout);
  }

  std::unique_ptr<MessageChannel> make(int number, const NcclId& sends, const NcclId& receives,
                                       milliseconds timeout) {
    const auto end = [&](const NcclId& id, int rank) {
      return std::make_unique<NcclCommunicator>(
          library, id, NcclCommunicator::Place{.rank = rank, .size = 2, .name = "NCCL"});
    };
    auto tensors = std::make_unique<NcclChannel>(
        end(sends, 0), end(receives, 1),
        NcclChannel::Settings{.device = at::Device(at::kCPU), .timeout = timeout});
    return std::make_unique<MessageChannel>(rings.end(number), std::move(tensors),
                                            MessageChannel::Settings{.timeout = timeout});
  }

  static Outgoing message(const std::string& bytes, std::vector<at::Tensor> tensors) {
    return outgoing(
        {.bytes = bytes, .payload = std::make_shared<TensorPayload>(std::move(tensors))});
  }

  static Message take(MessageChannel& channel) {
    return channel.receive().value_or(Message{.bytes = "fin"});
  }

  FakeNetwork network;
  FakeNccl library{network};
  RingPair rings;
  std::unique_ptr<MessageChannel> left;
  std::unique_ptr<MessageChannel> right;
};

TEST_F(NcclChannelTest, TensorsArriveAsTheyWere) {
  const std::vector<at::Tensor> tensors{at::arange(300'000, at::kFloat).view({3, -1}),
                                        at::empty({0, 4}, at::kLong), at::arange(7, at::kDouble),
                                        at::arange(12, at::kInt).view({3, 4}).t()};
  std::thread sends([&] { left->send(message("head", tensors)); });

  const Message arrived = take(*right);
  sends.join();

  EXPECT_EQ(arrived.bytes, "head");
  const std::vector<at::Tensor> received = take_tensors(arrived.payload);
  ASSERT_EQ(received.size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_TRUE(received[i].equal(tensors[i]) && received[i].dtype() == tensors[i].dtype()) << i;
    EXPECT_TRUE(received[i].is_contiguous());
  }
  EXPECT_EQ(network.groups, std::vector<size_t>({3, 3})) << "an empty tensor takes no call";
}

TEST_F(NcclChannelTest, MessagesKeepTheirOrderWhateverWayTheyTake) {
  constexpr int kMessages = 200;
  std::thread sends([&] {
    for (int i = 0; i < kMessages; ++i) {
      const bool plain = i % 3 == 0;
      const Outgoing next =
          message(std::to_string(i), plain ? std::vector<at::Tensor>()
                                           : std::vector<at::Tensor>{at::arange(i, i + 5000)});
      if (!left->send_at_once(next)) left->send(next);
    }
    left->send_fin();
  });

  for (int i = 0; i < kMessages; ++i) {
    const Message arrived = take(*right);
    ASSERT_EQ(arrived.bytes, std::to_string(i));
    if (i % 3 == 0) continue;
    EXPECT_TRUE(take_tensors(arrived.payload).at(0).equal(at::arange(i, i + 5000)));
  }
  EXPECT_EQ(take(*right).bytes, "fin");
  sends.join();
}

TEST_F(NcclChannelTest, BothWaysAtOnceStopNeither) {
  const auto busy = [&](MessageChannel& channel, std::vector<std::thread>& threads) {
    threads.emplace_back([&] {
      for (int i = 0; i < 30; ++i) channel.send(message("x", {at::arange(200'000)}));
    });
    threads.emplace_back([&] {
      for (int i = 0; i < 30; ++i) {
        EXPECT_TRUE(take_tensors(take(channel).payload).at(0).equal(at::arange(200'000)));
      }
    });
  };
  std::vector<std::thread> threads;
  busy(*left, threads);
  busy(*right, threads);
  for (std::thread& thread : threads) thread.join();
}

TEST_F(NcclChannelTest, NothingStartsOnTheDeviceBeforeTheOtherEndIsReady) {
  SharedRing frames(rings.memory[1]->data());
  std::thread sends([&] { left->send(message("head", {at::arange(10)})); });
  while (frames.available() == 0) std::this_thread::yield();

  EXPECT_EQ(network.launched(), 0U);

  EXPECT_EQ(take(*right).bytes, "head");
  sends.join();
  EXPECT_EQ(network.launched(), 2U);
}

class ImpatientNcclChannelTest : public NcclChannelTest {
 protected:
  ImpatientNcclChannelTest() : NcclChannelTest(milliseconds(50)) {}
};

TEST_F(ImpatientNcclChannelTest, AnEndThatIsNotReadyInTimeIsAnError) {
  EXPECT_THAT([&] { left->send(message("head", {at::arange(10)})); },
              ThrowsMessage<HostError>(HasSubstr("took no notice for 50 ms")));
}

TEST_F(ImpatientNcclChannelTest, AnEndThatAnnouncesAndDoesNotSendIsAnError) {
  // A sender that ends between frame and tensors: the frame by itself.
  StagedCopies none;
  const auto announced =
      std::make_shared<PackedMessage>(pack(message("head", {at::arange(10)}), at::kCPU, none));
  ASSERT_TRUE(rings.end(0)->send_at_once(announced->parts(), announced));

  EXPECT_THAT([&] { take(*right); },
              ThrowsMessage<HostError>(HasSubstr("receiving tensors between GPUs is not done")));
  EXPECT_EQ(network.aborts(), 1) << "its receive must not stay on the device";
}

TEST_F(NcclChannelTest, AbortEndsBothThreads) {
  std::thread sends([&] {
    EXPECT_THAT([&] { left->send(message("head", {at::arange(10)})); },
                ThrowsMessage<HostError>(HasSubstr("closed")));
  });
  std::thread receives(
      [&] { EXPECT_THAT([&] { take(*left); }, ThrowsMessage<HostError>(HasSubstr("closed"))); });

  left->abort();
  sends.join();
  receives.join();

  EXPECT_EQ(network.aborts(), 2);
}

}  // namespace
}  // namespace smp::transport
