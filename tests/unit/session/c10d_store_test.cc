// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/session/c10d_store.h"

#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <unistd.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/file.h"

namespace smp::session {
namespace {

using namespace std::chrono_literals;
using Store = c10::intrusive_ptr<c10d::Store>;

/// A TCPStore's server on a socket that outlives it, as while its process ends: a dialer still gets
/// through, nobody answers.
struct Server {
  Server() : socket(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(socket.get(), any, length), 0);
    EXPECT_EQ(listen(socket.get(), 8), 0);
    EXPECT_EQ(getsockname(socket.get(), any, &length), 0);
    options.port = ntohs(address.sin_port);
    options.isServer = true;
    options.waitWorkers = false;
    options.timeout = 60s;
    options.masterListenFd = dup(socket.get());
    store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  }

  [[nodiscard]] Store client() const {
    c10d::TCPStoreOptions own = options;
    own.isServer = false;
    own.masterListenFd.reset();
    return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", own);
  }

  FileDescriptor socket;
  c10d::TCPStoreOptions options;
  Store store;
};

TEST(C10dStore, AConnectionOfItsOwnHasTheSameKeysAndTimeout) {
  const Server server;
  const auto inner = c10::make_intrusive<c10d::PrefixStore>("job", server.client());
  const auto outer = c10::make_intrusive<c10d::PrefixStore>("group", inner);
  outer->setTimeout(7s);

  const Store own = own_connection(outer);

  outer->set("key", "value");
  EXPECT_EQ(own->get_to_str("key"), "value");
  EXPECT_EQ(own->getTimeout(), 7s);
  own->setTimeout(1s);
  EXPECT_EQ(outer->getTimeout(), 7s);
}

TEST(C10dStore, AServerThatEndsWhileItIsDialedIsNamedWithinTheLimitOfADial) {
  Server server;
  const auto keys = c10::make_intrusive<c10d::PrefixStore>("group", server.client());
  server.store.reset();
  std::thread end([&] {
    std::this_thread::sleep_for(100ms);
    server.socket = FileDescriptor(-1);
  });

  const auto start = std::chrono::steady_clock::now();
  try {
    static_cast<void>(own_connection(keys));
    FAIL() << "no error";
  } catch (const HostError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("the job's store does not answer at 127.0.0.1"));
  }
  end.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 30s);  // limit: 60
}

}  // namespace
}  // namespace smp::session
