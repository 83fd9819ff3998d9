// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/fetch/http_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/entrypoint/fetch/scripted_client.h"

namespace entrypoint::fetch {
namespace {

TEST(Retries, PassingFailuresAreTriedAgainUntilAnAnswerComes) {
  ScriptedClient client({answer(503), "Connection reset by peer", answer(500), answer(200, "x")});
  NotedWaits waits;

  const HttpResponse response = send_with_retries(client, {}, waits.policy, "test");

  EXPECT_EQ(response.body, "x");
  EXPECT_EQ(client.requests.size(), 4U);
  EXPECT_EQ(waits.waits.size(), 3U);
}

TEST(Retries, WaitsDoubleUpToTheLongestAndAreSpread) {
  ScriptedClient client({});
  NotedWaits waits;
  waits.policy.attempts = 9;

  EXPECT_THROW(send_with_retries(client, {}, waits.policy, "test"), NoAnswer);

  ASSERT_EQ(waits.waits.size(), 8U);
  long full = 250;
  for (const auto wait : waits.waits) {
    EXPECT_GE(wait.count(), full / 2);
    EXPECT_LE(wait.count(), full);
    full = std::min(full * 2, 10'000L);
  }
}

TEST(Retries, NoneBeginsWhenItIsTimeToGiveUp) {
  NotedWaits waits;
  waits.policy.give_up_after = std::chrono::milliseconds(0);
  ScriptedClient silent({});
  ScriptedClient busy({answer(503, "first"), answer(200)});

  EXPECT_THAT([&] { send_with_retries(silent, {}, waits.policy, "test"); },
              ::testing::ThrowsMessage<NoAnswer>("after 1 attempt: Connection refused"));
  EXPECT_EQ(send_with_retries(busy, {}, waits.policy, "test").body, "first");
  EXPECT_TRUE(waits.waits.empty());
}

TEST(Retries, RefusalsAreNotTriedAgain) {
  for (const int status : {200, 204, 301, 400, 401, 403, 404, 412, 501}) {
    ScriptedClient client({answer(status), answer(200)});
    NotedWaits waits;

    EXPECT_EQ(send_with_retries(client, {}, waits.policy, "test").status, status);
    EXPECT_EQ(client.requests.size(), 1U) << status;
  }
}

TEST(Retries, S3sOwnTimeoutIsAPassingOne) {
  EXPECT_TRUE(is_passing(answer(400, "<Error><Code>RequestTimeout</Code></Error>")));
  EXPECT_FALSE(is_passing(answer(400, "<Error><Code>InvalidRequest</Code></Error>")));
}

TEST(Retries, TheLastAnswerIsReturnedAsItIs) {
  ScriptedClient client({answer(503), answer(503, "last")});
  NotedWaits waits;
  waits.policy.attempts = 2;

  EXPECT_EQ(send_with_retries(client, {}, waits.policy, "test").body, "last");
}

}  // namespace
}  // namespace entrypoint::fetch
