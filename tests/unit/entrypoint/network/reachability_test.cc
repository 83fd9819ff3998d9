// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/network/reachability.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/deadline.h"
#include "smp_runtime/core/tcp.h"

namespace entrypoint {
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
    EXPECT_TRUE(listener->accept(smp::Clock::now() + 20s).has_value());
  }
  listener.reset();
  watch.join();

  EXPECT_THAT(loss, StartsWith("127.0.0.1 is lost"));
}

}  // namespace
}  // namespace entrypoint
