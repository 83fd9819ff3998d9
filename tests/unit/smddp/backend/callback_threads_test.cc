// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/backend/callback_threads.h"

#include <future>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/core/no_more_threads.h"

namespace smp::smddp {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

TEST(CallbackThreads, ACallbackRunsBesideOneThatWaitsForIt) {
  CallbackThreads threads;
  std::promise<void> second;
  std::promise<void> first;

  threads.run([&] {
    second.get_future().wait();
    first.set_value();
  });
  threads.run([&] { second.set_value(); });

  first.get_future().wait();
}

TEST(CallbackThreads, WithoutAThreadACallbackRunsWhereItIsToldAndKnowsWhy) {
  CallbackThreads threads;
  const CallbackThreads others;
  std::string why;
  std::string why_of_others;
  std::thread::id where;
  {
    const NoMoreThreads none;
    threads.run([&] {
      where = std::this_thread::get_id();
      why = threads.why_here();
      why_of_others = others.why_here();
    });
  }

  EXPECT_EQ(where, std::this_thread::get_id());
  EXPECT_THAT(why, HasSubstr("no thread \"smddp-callback\" could be made"));
  EXPECT_THAT(why_of_others, IsEmpty());
  EXPECT_THAT(threads.why_here(), IsEmpty());
}

TEST(CallbackThreads, ThreadsThatAreThereServeWhereNoMoreCanBeMade) {
  CallbackThreads threads;
  std::promise<std::thread::id> first;
  threads.run([&] { first.set_value(std::this_thread::get_id()); });
  EXPECT_NE(first.get_future().get(), std::this_thread::get_id());
  const NoMoreThreads none;

  std::promise<void> done;  // by that thread, or where it is told if that one is not idle yet
  threads.run([&] { done.set_value(); });

  done.get_future().wait();
}

}  // namespace
}  // namespace smp::smddp
