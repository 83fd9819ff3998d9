// SPDX-License-Identifier: Apache-2.0
// Both ends in one thread.
#include "entrypoint/ssh/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::ThrowsMessage;
using namespace std::chrono_literals;

Deadline soon() { return Clock::now() + 5s; }

class ConversationTest : public testing::Test {
 protected:
  ConversationTest() {
    auto one = tcp::Connection::open(tcp::resolve("127.0.0.1", listener.port()), 5s);
    master.emplace(std::move(one), Side::kMaster, secret);
    raw.emplace(listener.accept(soon()).value());
  }
  /// The worker's end, which is used raw or so.
  Conversation& worker(const Conversation::Secret& its) {
    if (!spoken) spoken.emplace(std::move(*raw), Side::kWorker, its);
    return *spoken;
  }

  Conversation::Secret secret = smp::JobSecret::draw();
  tcp::Listener listener{{"127.0.0.1"}, 0};
  std::optional<Conversation> master;
  std::optional<tcp::Connection> raw;
  std::optional<Conversation> spoken;
};

TEST_F(ConversationTest, LinesArriveAsTheyWereSaid) {
  master->say("hello", soon());
  EXPECT_EQ(worker(secret).hear(100, soon()), "hello");
  worker(secret).say("a b c", soon());
  worker(secret).say("d", soon());
  EXPECT_EQ(master->hear(200, soon()), "a b c");
  EXPECT_EQ(master->hear(200, soon()), "d");
}

TEST_F(ConversationTest, TheFirstLineHasANonceAndEachACode) {
  master->say("hello", soon());
  EXPECT_THAT(raw->read_line(100, soon()), MatchesRegex("hello [0-9a-f]{32} [0-9a-f]{32}"));
  master->say("more", soon());
  EXPECT_THAT(raw->read_line(100, soon()), MatchesRegex("more [0-9a-f]{32}"));
}

TEST_F(ConversationTest, ALineWithoutACodeIsRefused) {
  raw->write("hello\n", soon());
  EXPECT_THAT([&] { master->hear(100, soon()); },
              ThrowsMessage<smp::HostError>(HasSubstr("its line has no code by the job's secret")));
}

TEST_F(ConversationTest, ACodeUnderAnotherSecretIsRefused) {
  worker(smp::JobSecret::draw()).say("hello", soon());
  EXPECT_THAT([&] { master->hear(100, soon()); },
              ThrowsMessage<smp::HostError>(HasSubstr("under another secret")));
}

TEST_F(ConversationTest, ALineIsNotTakenBackByItsSpeaker) {
  master->say("hello", soon());
  raw->write(raw->read_line(100, soon()) + "\n", soon());
  EXPECT_THROW(master->hear(100, soon()), smp::HostError);
}

TEST_F(ConversationTest, AnOverheardConversationCannotBeRepeated) {
  Conversation earlier(tcp::Connection::open(tcp::resolve("127.0.0.1", listener.port()), 5s),
                       Side::kMaster, secret);
  auto other = listener.accept(soon()).value();
  earlier.say("who?", soon());
  Conversation true_worker(std::move(other), Side::kWorker, secret);
  true_worker.hear(100, soon());
  true_worker.say("me", soon());
  const std::string overheard = earlier.connection().read_line(100, soon());

  master->say("who?", soon());
  raw->write(overheard + "\n", soon());

  EXPECT_THROW(master->hear(100, soon()), smp::HostError);
}

TEST_F(ConversationTest, ALineLeftOutIsNoticed) {
  worker(secret).say("one", soon());
  worker(secret).say("two", soon());
  master->connection().read_line(100, soon());  // somebody in between drops it
  EXPECT_THROW(master->hear(100, soon()), smp::HostError);
}

TEST_F(ConversationTest, WithoutASecretLinesGoAsTheyAre) {
  Conversation plain(std::move(*raw), Side::kWorker, std::nullopt);
  plain.say("hello", soon());
  EXPECT_EQ(master->connection().read_line(100, soon()), "hello");
}

}  // namespace
}  // namespace entrypoint
