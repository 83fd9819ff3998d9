// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/ssh/peer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/tcp.h"

namespace entrypoint {
namespace {

using testing::HasSubstr;

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
  EXPECT_THAT(reason("127.0.0.1", smp::tcp::Listener({"127.0.0.1"}, 0).port()),
              HasSubstr("127.0.0.1: TCP: port"));
}

}  // namespace
}  // namespace entrypoint
