// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/channel/peer_queue.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/arange.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/transport/channel/tensor_payload.h"
#include "smp_runtime/transport/inbox.h"
#include "tests/unit/transport/ring_pair.h"

namespace smp::transport {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Deadline in_half_a_minute() { return Clock::now() + std::chrono::seconds(30); }

/// One end, as ProcessTransport has it.
class End {
 public:
  End(const RingPair& rings, int number, const PeerQueue::Ends& ends, pid_t process = getpid())
      : queue(std::make_unique<MessageChannel>(
                  rings.end(number, process), nullptr,
                  MessageChannel::Settings{.timeout = std::chrono::minutes(1)}),
              inbox, ends) {}
  ~End() { leave(Clock::now()); }

  void leave(Deadline deadline) {
    if (std::exchange(left_, true)) return;
    queue.close();
    queue.join(deadline);
  }
  Message take() { return inbox.take(in_half_a_minute()).value_or(Message{.bytes = "none"}); }

  Inbox inbox;
  PeerQueue queue;

 private:
  bool left_ = false;
};

Message message(const std::string& bytes, int64_t numbers) {
  return {.bytes = bytes,
          .payload = std::make_shared<TensorPayload>(std::vector<at::Tensor>{at::arange(numbers)})};
}

TEST(PeerQueue, MessagesKeepTheirOrderWhateverTheirSize) {
  const RingPair rings;
  End sender(rings, 0, {.rank = 0, .peer = 1});
  End receiver(rings, 1, {.rank = 1, .peer = 0});
  const auto numbers = [](int number) { return number % 3 == 0 ? 5 : 50'000; };
  for (int number = 0; number < 30; ++number) {
    sender.queue.push(message(std::to_string(number), numbers(number)));
  }

  for (int number = 0; number < 30; ++number) {
    const Message arrived = receiver.take();
    ASSERT_EQ(arrived.bytes, std::to_string(number));
    EXPECT_EQ(arrived.source, 0);
    EXPECT_TRUE(take_tensors(arrived.payload).at(0).equal(at::arange(numbers(number))));
  }
}

TEST(PeerQueue, TheDriversFinIsToldOnceItsMessagesAreRead) {
  const RingPair rings;
  End driver(rings, 0, {.rank = 0, .peer = 1});
  End other(rings, 1, {.rank = 1, .peer = 0});
  driver.queue.push(message("last", 50'000));

  driver.leave(in_half_a_minute());

  EXPECT_EQ(other.take().bytes, "last");
  const auto left = ThrowsMessage<HostError>(HasSubstr("rank 0 of the pipeline group has left"));
  EXPECT_THAT([&] { other.take(); }, left);
  EXPECT_THAT([&] { other.queue.push(message("late", 5)); }, left);
}

TEST(PeerQueue, TheFinOfARankThatIsNotTheDriverRefusesSendsAlone) {
  const RingPair rings;
  End one(rings, 0, {.rank = 1, .peer = 2});
  End other(rings, 1, {.rank = 2, .peer = 1});

  one.leave(in_half_a_minute());

  EXPECT_FALSE(other.inbox.take(Clock::now() + milliseconds(50)).has_value());
  const Deadline until = in_half_a_minute();
  EXPECT_THAT(
      [&] {
        while (Clock::now() < until) other.queue.push(message("late", 5));
      },
      ThrowsMessage<HostError>(HasSubstr("rank 1 of the pipeline group has left")));
}

TEST(PeerQueue, AProcessThatHasEndedIsNamedOnceItsMessagesAreRead) {
  const RingPair rings;
  ASSERT_TRUE(MessageChannel(rings.end(1), nullptr, {.timeout = milliseconds(0)})
                  .send_at_once(outgoing(message("last", 5))));
  End end(rings, 0, {.rank = 0, .peer = 3}, ended_process());

  EXPECT_EQ(end.take().bytes, "last");
  EXPECT_THAT([&] { end.take(); }, ThrowsMessage<HostError>(HasSubstr(
                                       "rank 3 of the pipeline group is lost: its process (pid")));
}

TEST(PeerQueue, JoinEndsAtItsDeadlineWhateverThePeerDoes) {
  const RingPair rings;
  const Deadline until = in_half_a_minute();
  End end(rings, 0, {.rank = 0, .peer = 1});
  end.queue.push(message("too much for a ring that nobody reads", 1'000'000));

  end.leave(Clock::now() + milliseconds(100));

  EXPECT_LT(Clock::now(), until);
}

}  // namespace
}  // namespace smp::transport
