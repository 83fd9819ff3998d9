// SPDX-License-Identifier: Apache-2.0
// A store under a job's secret, and a stranger who reaches its server.
#include "smp_runtime/session/authenticated_store.h"

#include <chrono>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "smp_runtime/core/error.h"
#include "smp_runtime/session/c10d_store.h"

namespace smp::session {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;
using namespace std::chrono_literals;

JobSecret secret(const std::string& text = "0123456789abcdef0123456789abcdef") {
  return JobSecret::given({{"SMP_JOB_SECRET", text}}).value();
}

struct AuthenticatedStoreTest : ::testing::Test {
  /// Reads a key that does not bear the code.
  static auto refused(c10d::Store& store, const std::string& key) {
    return [&store, key] { static_cast<void>(store.get_to_str(key)); };
  }

  const StorePtr server = c10::make_intrusive<c10d::HashStore>();  // as a stranger reaches it
  const StorePtr store = authenticated(server, secret());
};

TEST_F(AuthenticatedStoreTest, ValuesComeBackAsTheyWere) {
  store->set("text", "value");
  store->set("nothing", "");

  EXPECT_EQ(store->get_to_str("text"), "value");
  EXPECT_EQ(store->get_to_str("nothing"), "");
  EXPECT_EQ(store->multiGet({"text", "nothing"}).size(), 2);
  EXPECT_TRUE(store->check({"text", "nothing"}));
  EXPECT_TRUE(store->deleteKey("text"));
  EXPECT_FALSE(store->check({"text"}));
}

TEST_F(AuthenticatedStoreTest, AStrangerReadsNoValue) {
  const std::string value = "algo-1 at 10.0.0.1, and what lay behind it in memory";
  store->set("host/0", value);
  store->queuePush("work", {value.begin(), value.end()});
  store->set("zeros", std::string(64, '\0'));

  const auto left = server->queuePop("work", false);
  EXPECT_THAT(server->get_to_str("host/0"), Not(HasSubstr("algo-1")));
  EXPECT_THAT(std::string(left.begin(), left.end()), Not(HasSubstr("10.0.0.1")));
  EXPECT_THAT(server->get_to_str("zeros"), Not(HasSubstr(std::string(8, '\0'))));
}

TEST_F(AuthenticatedStoreTest, AValueThatAStrangerWroteIsRefusedByName) {
  store->set("host/0", "algo-1");
  server->set("host/0", "algo-9");

  EXPECT_THAT(
      refused(*store, "host/0"),
      ThrowsMessage<HostError>(AllOf(HasSubstr("\"host/0\""), HasSubstr("SMP_JOB_SECRET"))));
  EXPECT_THROW(static_cast<void>(store->multiGet({"host/0"})), HostError);
}

TEST_F(AuthenticatedStoreTest, AValueOfAnotherKeyOrAnotherSecretIsRefused) {
  store->set("one", "value");
  server->set("other", server->get("one"));
  authenticated(server, secret("another secret of 32 characters."))->set("third", "value");

  EXPECT_THROW(refused(*store, "other")(), HostError);
  EXPECT_THROW(refused(*store, "third")(), HostError);
}

TEST_F(AuthenticatedStoreTest, KeysAreWholeUnderPrefixes) {
  const auto under = [&](const char* name) {
    return authenticated(c10::make_intrusive<c10d::PrefixStore>(name, server), secret());
  };
  under("one")->set("key", "value");
  server->set("other/key", server->get("one/key"));

  EXPECT_EQ(store->get_to_str("one/key"), "value");
  EXPECT_THROW(refused(*under("other"), "key")(), HostError);
}

TEST_F(AuthenticatedStoreTest, ACounterIsReadWhereItIsCountedAndOnlyIfItIsANumber) {
  EXPECT_EQ(store->add("came", 2), 2);
  EXPECT_EQ(store->clone()->get_to_str("came"), "2");

  server->set("came", "print('code')");
  EXPECT_THROW(refused(*store, "came")(), HostError);
  server->set("size", "99");  // nobody counts with it
  EXPECT_THROW(refused(*store, "size")(), HostError);
}

TEST_F(AuthenticatedStoreTest, CountersThatAreOldAreForgotten) {
  for (std::size_t i = 0; i <= AuthenticatedStore::kCounters; ++i) {
    store->add("came/" + std::to_string(i), 1);
  }

  EXPECT_THROW(refused(*store, "came/0")(), HostError);
  EXPECT_EQ(store->get_to_str("came/1"), "1");
}

TEST_F(AuthenticatedStoreTest, ComparesAndSetsAsOtherStoresDo) {
  EXPECT_EQ(store->compareSet("token", "", "mine"), "mine");
  EXPECT_EQ(store->compareSet("token", "", "theirs"), "mine");
  EXPECT_EQ(store->compareSet("token", "mine", "next"), "next");
  EXPECT_EQ(store->compareSet("absent", "something", "next"),
            server->compareSet("not there", "something", "next"));
  store->set("empty", "");
  EXPECT_EQ(store->compareSet("empty", "", "filled"), "filled");
}

TEST_F(AuthenticatedStoreTest, AppendsAndMeetsAsOtherStoresDo) {
  const auto bytes = [](const std::string& text) {
    return std::vector<std::uint8_t>(text.begin(), text.end());
  };
  store->append("log", bytes("one,"));
  store->append("log", bytes("two"));

  EXPECT_EQ(store->get_to_str("log"), "one,two");
  server->append("log", bytes(",three"));
  EXPECT_THROW(refused(*store, "log")(), HostError);
}

TEST_F(AuthenticatedStoreTest, QueuesTakeNothingFromStrangers) {
  store->queuePush("work", {1, 2});
  server->queuePush("work", {3});

  EXPECT_EQ(store->queuePop("work", false), (std::vector<std::uint8_t>{1, 2}));
  EXPECT_THROW(store->queuePop("work", false), HostError);
}

TEST_F(AuthenticatedStoreTest, ItsSecretIsKnownUnderPrefixesAndOverConnectionsOfTheirOwn) {
  const StorePtr prefixed = c10::make_intrusive<c10d::PrefixStore>("group", store);

  EXPECT_EQ(secret_of(*server), nullptr);
  ASSERT_NE(secret_of(*prefixed), nullptr);
  EXPECT_EQ(secret_of(*own_connection(prefixed))->text(), secret().text());
  EXPECT_EQ(authenticated(prefixed, secret()), prefixed);
  prefixed->setTimeout(7s);
  EXPECT_EQ(server->getTimeout(), 7s);
  EXPECT_EQ(prefixed->getTimeout(), 7s);
}

}  // namespace
}  // namespace smp::session
