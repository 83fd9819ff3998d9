// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/channel/nccl_channel.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/transport/channel/shared_memory_channel.h"
#include "smp_runtime/transport/channel/tensor_payload.h"
#include "tests/unit/transport/fake_nccl.h"

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
    for (auto& one : memory) {
      one = std::make_shared<SharedMemory>(SharedMemory::create(SharedRing::size_bytes()));
    }
    left = make(memory[0], memory[1], there, back, timeout);
    right = make(memory[1], memory[0], back, there, timeout);
  }

  std::unique_ptr<NcclChannel> make(const std::shared_ptr<SharedMemory>& inward,
                                    const std::shared_ptr<SharedMemory>& outward,
                                    const NcclId& sends, const NcclId& receives,
                                    milliseconds timeout) {
    auto frames = std::make_unique<SharedMemoryChannel>(
        SharedMemoryChannel::Rings{.inward_memory = inward,
                                   .outward_memory = outward,
                                   .inward = SharedRing(inward->data()),
                                   .outward = SharedRing(outward->data())},
        getpid());
    const auto end = [&](const NcclId& id, int rank) {
      return std::make_unique<NcclCommunicator>(
          library, id, NcclCommunicator::Place{.rank = rank, .size = 2, .name = "NCCL"});
    };
    return std::make_unique<NcclChannel>(
        std::move(frames), end(sends, 0), end(receives, 1),
        NcclChannel::Settings{.device = at::Device(at::kCPU), .timeout = timeout});
  }

  static PackedMessage message(const std::string& bytes, std::vector<at::Tensor> tensors) {
    StagedCopies copies;
    return pack(
        outgoing({.bytes = bytes, .payload = std::make_shared<TensorPayload>(std::move(tensors))}),
        at::kCPU, copies);
  }

  static Message take(NcclChannel& channel) {
    std::optional<ArrivingMessage> arrived = channel.receive();
    StagedCopies copies;
    return arrived ? std::move(*arrived).finish(0, -1, copies) : Message{.bytes = "fin"};
  }

  FakeNetwork network;
  FakeNccl library{network};
  std::shared_ptr<SharedMemory> memory[2];
  std::unique_ptr<NcclChannel> left;
  std::unique_ptr<NcclChannel> right;
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
      const PackedMessage next =
          message(std::to_string(i), plain ? std::vector<at::Tensor>()
                                           : std::vector<at::Tensor>{at::arange(i, i + 5000)});
      if (!left->send_at_once(next)) left->send(next);
    }
    left->send(fin());
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
  const auto busy = [&](NcclChannel& channel, std::vector<std::thread>& threads) {
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
  SharedRing frames(memory[1]->data());
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
  PackedMessage announced = message("head", {at::arange(10)});
  announced.apart.clear();
  left->send(announced);

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
