// SPDX-License-Identifier: Apache-2.0
// Both ends in one thread: a connection is there before it is accepted.
#include "smp_runtime/core/tcp.h"

#include <array>
#include <cstddef>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"

namespace smp::tcp {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using namespace std::chrono_literals;

Deadline in(std::chrono::milliseconds time) { return Clock::now() + time; }

class TcpTest : public testing::Test {
 protected:
  Listener listener{{"127.0.0.1"}, 0};
  Connection left = Connection::open(resolve("127.0.0.1", listener.port()), 5s);
  Connection right = listener.accept(in(5s)).value();
};

TEST_F(TcpTest, BothEndsKnowEachOther) {
  EXPECT_EQ(left.peer().text(), "127.0.0.1");
  EXPECT_EQ(left.peer().port(), listener.port());
  EXPECT_EQ(right.own().port(), listener.port());
  EXPECT_EQ(right.peer().port(), left.own().port());
}

TEST_F(TcpTest, ALineLeavesWhatFollowsIt) {
  left.write("one\r\ntwo", in(5s));
  std::array<std::byte, 3> rest{};

  EXPECT_EQ(right.read_line(10, in(5s)), "one");
  right.read(rest, in(5s));

  EXPECT_EQ(rest[2], std::byte{'o'});
}

TEST_F(TcpTest, RefusesALineThatIsTooLong) {
  left.write("12345\n", in(5s));

  EXPECT_THAT([&] { right.read_line(4, in(5s)); },
              ThrowsMessage<HostError>(HasSubstr("sent a line of more than 4 bytes")));
}

TEST_F(TcpTest, ReadingEndsAtTheDeadline) {
  left.write("ab", in(5s));
  std::array<std::byte, 3> bytes{};

  EXPECT_THAT([&] { right.read(bytes, in(20ms)); },
              ThrowsMessage<HostError>(HasSubstr("says nothing")));
}

TEST_F(TcpTest, WritingToWhoDoesNotReadEndsAtTheDeadline) {
  const std::string more_than_fits(64 << 20, 'x');

  EXPECT_THAT([&] { left.write(more_than_fits, in(20ms)); },
              ThrowsMessage<HostError>(HasSubstr("takes no data")));
}

TEST_F(TcpTest, TheEndOfThePeerIsAnError) {
  { const Connection gone = std::move(left); }
  std::array<std::byte, 1> byte{};

  EXPECT_THAT([&] { right.read(byte, in(5s)); },
              ThrowsMessage<HostError>(HasSubstr("127.0.0.1 closed the connection")));
}

TEST_F(TcpTest, NobodyComes) { EXPECT_FALSE(listener.accept(in(20ms)).has_value()); }

TEST_F(TcpTest, NobodyReachesAListenerThatIsClosed) {
  listener.close();

  EXPECT_THAT([&] { Connection::open(resolve("127.0.0.1", listener.port()), 5s); },
              ThrowsMessage<HostError>("127.0.0.1: Connection refused"));
}

TEST_F(TcpTest, APortIsListenedOnOnce) {
  EXPECT_THAT([&] { Listener({"127.0.0.1"}, listener.port()); },
              ThrowsMessage<HostError>(fmt::format(
                  "cannot listen on 127.0.0.1 port {}: Address already in use", listener.port())));
}

TEST(Tcp, TellsHostsApart) {
  const Address host = resolve("10.0.0.1", 1).at(0);

  EXPECT_TRUE(host.same_host(resolve("10.0.0.1", 2).at(0)));
  EXPECT_TRUE(host.same_host(resolve("::ffff:10.0.0.1", 1).at(0)));
  EXPECT_FALSE(host.same_host(resolve("10.0.0.2", 1).at(0)));
  EXPECT_EQ(resolve("::ffff:10.0.0.1", 1).at(0).text(), "10.0.0.1");
}

TEST(Deadline, IsWhatPollTakes) {
  EXPECT_EQ(poll_timeout(kNever), -1);
  EXPECT_EQ(poll_timeout(Clock::now()), 0);
  EXPECT_EQ(poll_timeout(Clock::now() + 10min), 60'000);
  EXPECT_GT(poll_timeout(Clock::now() + 1s), 0);
}

}  // namespace
}  // namespace smp::tcp
