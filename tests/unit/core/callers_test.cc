// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/callers.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"

namespace smp::tcp {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using namespace std::chrono_literals;

bool is_line(std::string_view words) { return words.ends_with('\n'); }

struct CallersTest : testing::Test {
  [[nodiscard]] Connection call() const {
    return Connection::open(resolve("127.0.0.1", listener.port()), 5s);
  }

  Listener listener{{"127.0.0.1"}, 0};
  Callers::Rules rules{.limit = 30s, .longest = 20, .is_whole = is_line};
};

TEST_F(CallersTest, SilentOnesKeepNobodyWaiting) {
  std::vector<Connection> silent;
  for (int i = 0; i < 5; ++i) silent.push_back(call());
  silent.back().write("half a", Clock::now() + 5s);
  Connection speaks = call();
  speaks.write("a line\nthe next\n", Clock::now() + 5s);
  Callers callers(listener, rules);

  auto caller = callers.next(Clock::now() + 5s);

  ASSERT_TRUE(caller);
  EXPECT_EQ(caller->heard, "a line\n");
  EXPECT_EQ(caller->connection.peer().port(), speaks.own().port());
  EXPECT_EQ(caller->connection.read_line(10, Clock::now() + 5s), "the next");
}

TEST_F(CallersTest, EachIsGreetedOrTurnedAway) {
  Connection wanted = call();
  Connection unwanted = call();
  rules.greet = [&](const Connection& from) -> std::optional<std::string> {
    if (from.peer().port() == unwanted.own().port()) return std::nullopt;
    return "hello\n";
  };
  Callers callers(listener, rules);
  wanted.write("hi\n", Clock::now() + 5s);

  const auto caller = callers.next(Clock::now() + 5s);

  ASSERT_TRUE(caller);
  EXPECT_EQ(caller->told, "hello\n");
  EXPECT_EQ(wanted.read_line(10, Clock::now() + 5s), "hello");
  EXPECT_THAT([&] { unwanted.read_line(10, Clock::now() + 5s); },
              ThrowsMessage<HostError>(HasSubstr("closed the connection")));
}

TEST_F(CallersTest, WhoTakesTooLongOrSaysTooMuchIsDropped) {
  rules.limit = 50ms;
  Connection late = call();
  Connection endless = call();
  endless.write(std::string(21, 'x'), Clock::now() + 5s);
  Callers callers(listener, rules);

  EXPECT_FALSE(callers.next(Clock::now() + 200ms));

  EXPECT_THROW(late.read_line(10, Clock::now() + 5s), HostError);
  EXPECT_THROW(endless.read_line(10, Clock::now() + 5s), HostError);
}

TEST_F(CallersTest, ManyOfOneHostPushEachOtherOut) {
  std::vector<Connection> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(call());
  Callers callers(listener, rules);
  EXPECT_FALSE(callers.next(Clock::now() + 50ms));

  silent.back().write("the last\n", Clock::now() + 5s);

  EXPECT_THROW(silent.front().read_line(10, Clock::now() + 5s), HostError);
  EXPECT_EQ(callers.next(Clock::now() + 5s).value().heard, "the last\n");
}

}  // namespace
}  // namespace smp::tcp
