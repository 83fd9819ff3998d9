// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/named_thread.h"

#include <semaphore>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include "smp_runtime/core/error.h"
#include "tests/unit/core/no_more_threads.h"

namespace smp {
namespace {

std::string name_of_this_thread() {
  std::string name(16, '\0');
  pthread_getname_np(pthread_self(), name.data(), name.size());
  return name.c_str();
}

TEST(NamedThread, HasAsMuchOfItsNameAsTheSystemTakes) {
  std::string seen;
  std::binary_semaphore is_named{0};
  std::thread thread = named_thread("a-name-of-20-letters", [&] {
    is_named.acquire();
    seen = name_of_this_thread();
  });
  is_named.release();
  thread.join();

  EXPECT_EQ(seen, "a-name-of-20-le");
}

TEST(NamedThread, WhereNoneCanBeMadeTheErrorNamesTheLimits) {
  const NoMoreThreads none;

  EXPECT_THAT(
      [] { named_thread("worker", [] {}).join(); },
      testing::ThrowsMessage<HostError>(testing::ContainsRegex(
          "no thread \"worker\" could be made: .*pids.max of the container: .*ulimit -u: ")));
}

}  // namespace
}  // namespace smp
