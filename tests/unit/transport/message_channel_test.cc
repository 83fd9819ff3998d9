// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/channel/message_channel.h"

#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/job_secret.h"
#include "smp_runtime/transport/channel/tensor_payload.h"

namespace smp::transport {
namespace {

using Bytes = std::shared_ptr<std::deque<std::byte>>;

/// Keeps what is sent until it is received.
class Echo : public ByteChannel {
 public:
  explicit Echo(Bytes bytes) : bytes_(std::move(bytes)) {}
  void send(std::span<const Part> message, const Owner& /*owner*/) override {
    for (const Part& part : message) bytes_->insert(bytes_->end(), part.begin(), part.end());
  }
  bool send_at_once(std::span<const Part> message, const Owner& owner) override {
    if (size_bytes(message) > 1000) return false;
    send(message, owner);
    return true;
  }
  void receive_header(Room header) override { receive(std::span(&header, 1), nullptr); }
  void receive(std::span<const Room> parts, const Owner& /*owner*/) override {
    for (const Room& part : parts) {
      SMP_CHECK(part.size() <= bytes_->size(), "{} bytes are missing",
                part.size() - bytes_->size());
      const auto end = bytes_->begin() + static_cast<std::ptrdiff_t>(part.size());
      std::copy(bytes_->begin(), end, part.begin());
      bytes_->erase(bytes_->begin(), end);
    }
  }
  void give_credit() override {}
  void await_credit(const WaitLimit& /*limit*/) override {}
  void abort() override {}

 private:
  const Bytes bytes_;
};

struct MessageChannelTest : ::testing::Test {
  static Outgoing message(const std::string& bytes, std::vector<at::Tensor> tensors = {}) {
    return outgoing(
        {.bytes = bytes, .payload = std::make_shared<TensorPayload>(std::move(tensors))});
  }

  Bytes wire = std::make_shared<std::deque<std::byte>>();
  MessageChannel channel{
      std::make_unique<Echo>(wire), nullptr, {.timeout = std::chrono::minutes(1)}};
};

TEST_F(MessageChannelTest, TensorsArriveAsTheyWere) {
  const std::vector<at::Tensor> tensors{at::arange(300, at::kFloat).view({3, -1}),
                                        at::empty({0, 4}, at::kLong), at::arange(7, at::kDouble),
                                        at::arange(12, at::kInt).view({3, 4}).t()};
  channel.send(message("head", tensors));

  const Message arrived = channel.receive().value();

  EXPECT_EQ(arrived.bytes, "head");
  const std::vector<at::Tensor> received = take_tensors(arrived.payload);
  ASSERT_EQ(received.size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_TRUE(received[i].equal(tensors[i]) && received[i].dtype() == tensors[i].dtype()) << i;
    EXPECT_TRUE(received[i].is_contiguous());
  }
}

TEST_F(MessageChannelTest, ALargeMessageIsNotSentAtOnce) {
  EXPECT_TRUE(channel.send_at_once(message("small", {at::arange(5)})));
  EXPECT_FALSE(channel.send_at_once(message("large", {at::arange(1000)})));

  EXPECT_EQ(channel.receive().value().bytes, "small");
}

TEST_F(MessageChannelTest, TheFinComesBehindTheMessages) {
  channel.send(message("last"));
  channel.send_fin();

  EXPECT_EQ(channel.receive().value().bytes, "last");
  EXPECT_FALSE(channel.receive().has_value());
}

/// Two ends whose bytes a stranger may change on their way.
struct SealedMessages : MessageChannelTest {
  MessageChannel end(uint64_t rank, uint64_t peer, const JobSecret& known) {
    return {std::make_unique<Echo>(wire),
            nullptr,
            {.timeout = std::chrono::minutes(1),
             .codes = MessageChannel::Codes{
                 .key = MacKey(known, "a test"), .rank = rank, .peer = peer}}};
  }
  static auto receive_of(MessageChannel& channel) {
    return [&channel] { static_cast<void>(channel.receive()); };
  }
  const ::testing::Matcher<std::function<void()>> is_refused =
      ::testing::ThrowsMessage<HostError>(::testing::HasSubstr("the code of the job's secret"));

  const JobSecret secret = JobSecret::draw();
  MessageChannel left = end(0, 1, secret);
  MessageChannel right = end(1, 0, secret);
};

TEST_F(SealedMessages, ArriveInTheirOrderAndEndWithTheFin) {
  left.send(message("first", {at::arange(3)}));
  EXPECT_TRUE(left.send_at_once(message("second")));
  EXPECT_FALSE(left.send_at_once(message("large", {at::arange(1000)})));
  left.send(message("third"));
  left.send_fin();

  for (const char* const expected : {"first", "second", "third"}) {
    EXPECT_EQ(right.receive().value().bytes, expected);
  }
  EXPECT_FALSE(right.receive().has_value());
}

TEST_F(SealedMessages, AFrameOrAHeadThatWasChangedIsRefused) {
  for (const size_t place : {size_t{0}, sizeof(MessageFrame) - 1, sizeof(MessageFrame) + 2}) {
    wire->clear();
    MessageChannel sender = end(0, 1, secret);
    MessageChannel receiver = end(1, 0, secret);
    sender.send(message("code to unpickle"));
    wire->at(place) ^= std::byte{1};

    EXPECT_THAT(receive_of(receiver), is_refused) << place;
  }
}

TEST_F(SealedMessages, AStrangersMessageAndFinAreRefused) {
  MessageChannel(std::make_unique<Echo>(wire), nullptr, {.timeout = std::chrono::minutes(1)})
      .send(message("no code at all"));
  EXPECT_THAT(receive_of(right), is_refused);

  wire->clear();
  end(0, 1, JobSecret::draw()).send_fin();
  EXPECT_THAT(receive_of(right), is_refused);
}

TEST_F(SealedMessages, AMessageIsOfUseOnceAndToItsReceiverAlone) {
  left.send(message("pay"));
  const std::deque<std::byte> sent = *wire;
  EXPECT_EQ(right.receive().value().bytes, "pay");

  *wire = sent;
  EXPECT_THAT(receive_of(right), is_refused) << "a second time";
  *wire = sent;
  EXPECT_THAT(receive_of(left), is_refused) << "back to its sender";
  *wire = sent;
  MessageChannel third = end(2, 0, secret);
  EXPECT_THAT(receive_of(third), is_refused) << "to another rank";
}

TEST_F(MessageChannelTest, AHeadThatIsAnnouncedTooLargeIsNotAllocated) {
  for (const auto& [message_bytes, meta_bytes] :
       {std::pair(uint64_t{1} << 60, uint64_t{0}), std::pair(~uint64_t{0}, uint64_t{2})}) {
    const MessageFrame frame{.message_bytes = message_bytes, .meta_bytes = meta_bytes};
    wire->clear();
    const auto bytes = std::as_bytes(std::span(&frame, 1));
    wire->insert(wire->end(), bytes.begin(), bytes.end());

    EXPECT_THAT(
        [&] { static_cast<void>(channel.receive()); },
        ::testing::ThrowsMessage<HostError>(::testing::HasSubstr("pass large data as tensors")));
  }
}

TEST(TensorMessage, AShapeThatNoMemoryHoldsIsRefused) {
  std::string meta;
  append_meta(meta, at::empty({0, 4}));
  std::string_view bytes = meta;
  ASSERT_THAT(take_meta(bytes).sizes, ::testing::ElementsAre(0, 4));

  for (const auto& [rows, columns] :
       {std::pair(int64_t{1} << 32, int64_t{1} << 31), std::pair(int64_t{-1}, int64_t{4})}) {
    const std::array<int64_t, 2> sizes{rows, columns};
    std::memcpy(meta.data() + meta.size() - sizeof(sizes), sizes.data(), sizeof(sizes));
    bytes = meta;
    EXPECT_THAT([&] { static_cast<void>(take_meta(bytes)); },
                ::testing::ThrowsMessage<InternalError>(::testing::HasSubstr(
                    fmt::format("a tensor of shape [{}, {}]", rows, columns))));
  }
}

TEST(TensorMessage, ATypeThatPacksItsElementsIsRefused) {
  // Torch gives it half of the memory that its size says.
  std::string meta;
  append_meta(meta, at::empty({1, 6}));
  const auto packed = static_cast<int64_t>(at::kQUInt4x2);
  std::memcpy(meta.data(), &packed, sizeof(packed));

  std::string_view bytes = meta;
  EXPECT_THAT([&] { static_cast<void>(take_meta(bytes)); },
              ::testing::ThrowsMessage<InternalError>(::testing::HasSubstr("a quantized tensor")));
}

TEST(TensorMessage, TensorsThatComeApartLeaveTheOthersTheirPlaces) {
  // As a rank packs the first and third of a GPU: they are named in the head and not sent with it.
  const std::vector<at::Tensor> tensors{at::arange(3), at::arange(7), at::arange(2), at::arange(5)};
  StagedCopies none;
  PackedMessage mixed =
      pack(outgoing({.bytes = "mixed", .payload = std::make_shared<TensorPayload>(tensors)}),
           std::nullopt, none);
  const size_t meta_bytes = mixed.frame.meta_bytes / tensors.size();
  for (const size_t apart : {0, 2}) {
    const auto device = static_cast<int64_t>(at::kCUDA);  // the second number of a meta
    std::memcpy(mixed.head.data() + mixed.frame.message_bytes + apart * meta_bytes + sizeof(device),
                &device, sizeof(device));
  }
  mixed.tensors = {tensors[1], tensors[3]};
  mixed.frame.apart_device = static_cast<int16_t>(at::kCUDA);

  ArrivingMessage arrived(mixed.frame, mixed.head);
  const std::vector<ByteChannel::Room> rooms = arrived.rooms();
  const std::vector<ByteChannel::Part> parts = mixed.parts();
  ASSERT_EQ(rooms.size() + 2, parts.size());  // frame and head
  for (size_t i = 0; i < rooms.size(); ++i) {
    ASSERT_EQ(rooms[i].size(), parts[i + 2].size());
    std::copy(parts[i + 2].begin(), parts[i + 2].end(), rooms[i].begin());
  }

  const std::vector<Received>& received = arrived.tensors();
  ASSERT_EQ(received.size(), tensors.size());
  for (const size_t apart : {0, 2}) EXPECT_FALSE(received[apart].tensor.defined());
  for (const size_t whole : {1, 3}) EXPECT_TRUE(received[whole].tensor.equal(tensors[whole]));
}

}  // namespace
}  // namespace smp::transport
