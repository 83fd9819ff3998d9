// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/nccl/nccl_communicator.h"

#include <memory>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"
#include "tests/unit/transport/fake_nccl.h"

namespace smp::transport {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::ThrowsMessage;

WaitLimit soon() { return WaitLimit::after(milliseconds(50), "the test"); }
WaitLimit later() { return WaitLimit::after(std::chrono::minutes(1), "the test"); }

class NcclCommunicatorTest : public ::testing::Test {
 protected:
  std::unique_ptr<NcclCommunicator> end(int rank) {
    return std::make_unique<NcclCommunicator>(
        library, id, NcclCommunicator::Place{.rank = rank, .size = 2, .name = "NCCL from 0 to 1"});
  }

  FakeNetwork network;
  FakeNccl library{network};
  NcclId id = library.new_id();
};

TEST_F(NcclCommunicatorTest, ConnectsWhenBothHaveCome) {
  const auto sender = end(0);
  std::thread waits([&] { sender->connect(later()); });
  const auto receiver = end(1);

  receiver->connect(later());
  waits.join();

  EXPECT_EQ(network.aborts(), 0);
}

TEST_F(NcclCommunicatorTest, GivesUpOnAnEndThatDoesNotCome) {
  const auto alone = end(0);

  EXPECT_THAT([&] { alone->connect(soon()); },
              ThrowsMessage<HostError>(AllOf(HasSubstr("NCCL from 0 to 1: the test is not done"),
                                             HasSubstr("after 50 ms"))));
  EXPECT_EQ(network.aborts(), 1) << "else the device would wait on";
  EXPECT_THAT([&] { alone->connect(later()); },
              ThrowsMessage<HostError>(HasSubstr("is not done after 50 ms")));
}

TEST_F(NcclCommunicatorTest, GivesUpOnAnEndThatDoesNotSend) {
  const auto sender = end(0);
  const auto receiver = end(1);
  receiver->connect(later());
  char byte = 0;
  const std::vector<NcclOperation> receive{
      {.kind = NcclOperation::Kind::kReceive, .to = &byte, .count = 1, .peer = 0}};

  EXPECT_THAT([&] { receiver->start(receive, nullptr, soon()); },
              ThrowsMessage<HostError>(HasSubstr("another rank is late, stopped or has ended")));
  EXPECT_EQ(network.aborts(), 1);
}

TEST_F(NcclCommunicatorTest, GivesUpOnWorkThatIsNeverDone) {
  const auto sender = end(0);
  const auto receiver = end(1);

  EXPECT_THAT([&] { sender->wait_until([] { return false; }, soon()); },
              ThrowsMessage<HostError>(HasSubstr("is not done after 50 ms")));
}

TEST_F(NcclCommunicatorTest, TellsWhatNcclSays) {
  const auto sender = end(0);
  const auto receiver = end(1);
  network.fail("remote process exited (net.cc:12)");

  EXPECT_THAT([&] { sender->wait_until([] { return false; }, later()); },
              ThrowsMessage<HostError>(HasSubstr("remote process exited (net.cc:12)")));
  EXPECT_THAT([&] { receiver->wait_until([] { return true; }, later()); },
              ThrowsMessage<HostError>(HasSubstr("remote process exited")))
      << "what an error ended early is not what was asked for";
}

TEST_F(NcclCommunicatorTest, SaysWhatToDoAboutAnErrorThatNcclDoesNotExplain) {
  const auto sender = end(0);
  const auto receiver = end(1);
  network.fail("unhandled system error (run with NCCL_DEBUG=INFO for details)");

  EXPECT_THAT([&] { sender->wait_until([] { return false; }, later()); },
              ThrowsMessage<HostError>(
                  AllOf(HasSubstr("unhandled system error (run with"), HasSubstr("df /dev/shm"))));
}

TEST_F(NcclCommunicatorTest, AbortEndsAWaitOfAnotherThread) {
  const auto alone = end(0);
  std::thread aborts([&] { alone->abort("rank 1 is lost"); });

  EXPECT_THAT([&] { alone->connect(later()); },
              ThrowsMessage<HostError>(HasSubstr("rank 1 is lost")));
  aborts.join();
  EXPECT_EQ(network.aborts(), 1);
}

TEST_F(NcclCommunicatorTest, GroupsAreCutAlikeOnBothSides) {
  const auto sender = end(0);
  const auto receiver = end(1);
  std::vector<int> sent(150);
  std::vector<int> received(150, -1);
  std::vector<NcclOperation> sends;
  std::vector<NcclOperation> receives;
  for (size_t i = 0; i < sent.size(); ++i) {
    sent[i] = static_cast<int>(i);
    sends.push_back({.kind = NcclOperation::Kind::kSend, .from = &sent[i], .count = 4, .peer = 1});
    receives.push_back(
        {.kind = NcclOperation::Kind::kReceive, .to = &received[i], .count = 4, .peer = 0});
  }

  std::thread other([&] { receiver->start(receives, nullptr, later()); });
  sender->start(sends, nullptr, later());
  other.join();

  EXPECT_EQ(received, sent);
  EXPECT_EQ(network.groups.size(), 6U);
  EXPECT_THAT(network.groups, Each(Le(NcclCommunicator::kMostTogether)));
}

TEST_F(NcclCommunicatorTest, ClosesWhatWorks) {
  {
    const auto sender = end(0);
    const auto receiver = end(1);
    sender->connect(later());
    receiver->connect(later());
    char sent = 1;
    char received = 0;
    const std::vector<NcclOperation> send{
        {.kind = NcclOperation::Kind::kSend, .from = &sent, .count = 1, .peer = 1}};
    const std::vector<NcclOperation> receive{
        {.kind = NcclOperation::Kind::kReceive, .to = &received, .count = 1, .peer = 0}};
    std::thread other([&] { receiver->start(receive, nullptr, later()); });
    sender->start(send, nullptr, later());
    other.join();
    sender->wait_until([] { return true; }, later());
    receiver->wait_until([] { return true; }, later());
    sender->abort("closed");  // as a channel that nobody needs any more

    EXPECT_THAT([&] { sender->start(send, nullptr, later()); },
                ThrowsMessage<HostError>(HasSubstr("closed")));
  }

  EXPECT_EQ(network.aborts(), 0) << "NCCL takes an abort for a failure";
  EXPECT_EQ(network.destroyed, 2);
  EXPECT_EQ(network.open, 0);
}

TEST_F(NcclCommunicatorTest, AbortsWhatIsUnderWayAtItsEnd) {
  {
    const auto sender = end(0);
    const auto receiver = end(1);  // and nobody has waited for it
    sender->connect(later());
  }

  EXPECT_EQ(network.aborts(), 1);
  EXPECT_EQ(network.open, 0);
}

TEST_F(NcclCommunicatorTest, GivesUpOnClosingWhatFails) {
  {
    const auto sender = end(0);
    const auto receiver = end(1);
    sender->connect(later());
    receiver->connect(later());
    network.fail("remote process exited (net.cc:12)");
  }

  EXPECT_EQ(network.aborts(), 2);
  EXPECT_EQ(network.open, 0);
}

}  // namespace
}  // namespace smp::transport
