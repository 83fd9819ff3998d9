// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/launch/cluster/peer_watch.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entrypoint/launch/cluster/peer.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/tcp.h"

namespace entrypoint::launch {
namespace {

namespace tcp = smp::tcp;
using testing::HasSubstr;
using testing::StartsWith;
using namespace std::chrono_literals;

int port_that_nobody_listens_on() { return tcp::Listener({"127.0.0.1"}, 0).port(); }

TEST(PeerWatch, ReportsAHostAfterSoManyMisses) {
  const std::string loss = watch_hosts({.hosts = {"localhost"},
                                        .port = port_that_nobody_listens_on(),
                                        .period = 1ms,
                                        .limit = 1s,
                                        .misses = 3});

  EXPECT_THAT(loss, StartsWith("localhost is lost: "));
  EXPECT_THAT(loss, HasSubstr("did not answer 3 times in a row (Connection refused)"));
}

TEST(PeerWatch, PicksTheOneThatIsGone) {
  const tcp::Listener listener({"127.0.0.1"}, 0);

  const std::string loss = watch_hosts({.hosts = {"127.0.0.1", "no-such-host.invalid"},
                                        .port = listener.port(),
                                        .period = 1ms,
                                        .limit = 1s,
                                        .misses = 2});

  EXPECT_THAT(loss, StartsWith("no-such-host.invalid is lost: "));
  EXPECT_THAT(loss, HasSubstr("the name does not resolve"));
}

TEST(PeerWatch, StaysWhileTheHostAnswers) {
  auto listener = std::make_unique<tcp::Listener>(std::vector<std::string>{"127.0.0.1"}, 0);
  const int port = listener->port();
  std::string loss;
  std::thread watch([&] {
    loss = watch_hosts(
        {.hosts = {"127.0.0.1"}, .port = port, .period = 1ms, .limit = 1s, .misses = 1});
  });

  for (int looks = 0; looks < 5; ++looks) {
    EXPECT_TRUE(listener->accept(Clock::now() + 20s).has_value());
  }
  listener.reset();
  watch.join();

  EXPECT_THAT(loss, StartsWith("127.0.0.1 is lost"));
}

TEST(Peer, SaysHowFarItGot) {
  const auto reason = [](const std::string& host, int port) -> std::string {
    try {
      wait_for_peer({.host = host, .port = port, .job = "job", .job_key = "key"}, Clock::now());
      return "reached";
    } catch (const smp::HostError& error) {
      return error.what();
    }
  };

  EXPECT_EQ(reason("no-such-host.invalid", 22),
            "no-such-host.invalid: DNS: the name does not resolve");
  EXPECT_THAT(reason("127.0.0.1", port_that_nobody_listens_on()),
              HasSubstr("127.0.0.1: TCP: port"));
}

}  // namespace
}  // namespace entrypoint::launch
