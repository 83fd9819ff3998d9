// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/payload_dictionary.h"

#include <random>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"

namespace smp::pipeline {
namespace {

constexpr int kSender = 0;
constexpr int kReceiver = 1;

class PayloadDictionaryTest : public ::testing::Test {
 protected:
  /// Message on the wire for this body.
  transport::Message sent(std::string body, Kind kind = Kind::kForward) {
    Envelope envelope{.kind = kind, .body = std::move(body)};
    ours_.shorten(kReceiver, envelope);
    return encode(std::move(envelope));
  }
  std::string received(transport::Message message) {
    message.source = kSender;
    Envelope envelope = decode(std::move(message));
    theirs_.restore(envelope);
    return envelope.body;
  }
  std::string carried(std::string body, Kind kind = Kind::kForward) {
    return received(sent(std::move(body), kind));
  }

  PayloadDictionary ours_{2};
  PayloadDictionary theirs_{2};
};

TEST_F(PayloadDictionaryTest, ABodyTravelsOnce) {
  const std::string body(500, 'b');
  transport::Message first = sent(body);
  transport::Message second = sent(body);

  EXPECT_EQ(second.bytes.size() + body.size(), first.bytes.size());
  EXPECT_EQ(received(std::move(first)), body);
  EXPECT_EQ(received(std::move(second)), body);
}

TEST_F(PayloadDictionaryTest, EachDestinationHasATableOfItsOwn) {
  Envelope envelope{.kind = Kind::kForward, .body = std::string(100, 'b')};
  PayloadDictionary table(3);
  Envelope to_first = envelope;
  Envelope to_second = envelope;
  table.shorten(1, to_first);
  table.shorten(2, to_second);

  EXPECT_EQ(to_first.body, envelope.body);
  EXPECT_EQ(to_second.body, envelope.body);
}

TEST_F(PayloadDictionaryTest, ShortBodiesAndThoseOfOtherMessagesTravelAsTheyAre) {
  const std::string body(100, 'b');
  for (int repeat = 0; repeat < 2; ++repeat) {
    EXPECT_THAT(sent(body, Kind::kAbort).bytes, ::testing::HasSubstr(body));
    EXPECT_THAT(sent("short").bytes, ::testing::EndsWith("short"));
  }
  EXPECT_EQ(carried(""), "");
}

TEST_F(PayloadDictionaryTest, AMessageThatNobodyHandlesIsSeen) {
  const std::string body(100, 'b');
  (void)carried(body);  // a step that fails

  EXPECT_EQ(carried(body, Kind::kForwardReply), body);
}

TEST_F(PayloadDictionaryTest, BothEndsStartAnewWhenTheTableIsFull) {
  std::mt19937 random(7);
  // 40 bodies of 40 sizes, of which about half fit at a time, over and over.
  for (int round = 0; round < 400; ++round) {
    const auto index = random() % 40;
    const std::string body(PayloadDictionary::kMostBytes / 20 + index,
                           static_cast<char>('A' + index));
    ASSERT_EQ(carried(body), body) << "round " << round;
  }
  EXPECT_EQ(carried(std::string(PayloadDictionary::kMostBytes + 1, 'x')).size(),
            PayloadDictionary::kMostBytes + 1);
}

TEST_F(PayloadDictionaryTest, AnewIsRightWhetherTheLastMessageLeftOrNot) {
  const std::string first(100, 'a');
  const std::string second(100, 'b');
  for (const bool left : {false, true}) {
    (void)carried(first);
    transport::Message message = sent(second);
    if (left) (void)received(std::move(message));
    ours_.start_anew(kReceiver);

    EXPECT_EQ(carried(second), second);
    EXPECT_EQ(carried(first), first);
    EXPECT_EQ(carried(second), second);
  }
}

TEST_F(PayloadDictionaryTest, ALostMessageIsFoundOut) {
  (void)sent(std::string(100, 'a'));

  EXPECT_THROW((void)carried(std::string(100, 'b')), InternalError);
  EXPECT_THROW((void)carried(std::string(100, 'a')), InternalError);
}

}  // namespace
}  // namespace smp::pipeline
