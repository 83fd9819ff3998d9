// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/ssh/node_report.h"

#include <future>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using namespace std::chrono_literals;
using Hosts = std::vector<std::string>;

Deadline in(std::chrono::milliseconds time) { return Clock::now() + time; }

class NodeReport : public ::testing::Test {
 protected:
  std::future<Hosts> node(int number, const std::string& job = "d4c3",
                          std::chrono::milliseconds limit = std::chrono::seconds(20)) {
    return std::async(std::launch::async, [this, number, job, limit] {
      return report_to_main("127.0.0.1", listener_.port(), {.id = job}, number, in(limit));
    });
  }

  template <typename Action>
  static std::string failure(Action action) {
    try {
      action();
    } catch (const smp::HostError& error) {
      return error.what();
    }
    return "none";
  }

  tcp::Listener listener_{{"127.0.0.1"}, 0};
};

TEST_F(NodeReport, GivesAllNodesTheSameAddresses) {
  std::future<Hosts> second = node(2);
  std::future<Hosts> first = node(1);

  const Hosts hosts =
      collect_reports(listener_, {.id = "d4c3", .count = 3}, in(std::chrono::seconds(20)));

  EXPECT_THAT(hosts, AllOf(SizeIs(3), Each(std::string("127.0.0.1"))));
  EXPECT_EQ(first.get(), hosts);
  EXPECT_EQ(second.get(), hosts);
}

TEST_F(NodeReport, NamesTheNodesThatHaveNotCome) {
  std::future<Hosts> second = node(2, "d4c3", std::chrono::milliseconds(2500));

  const std::string text = failure(
      [&] { collect_reports(listener_, {.id = "d4c3", .count = 4}, in(std::chrono::seconds(2))); });

  EXPECT_THAT(text, AllOf(HasSubstr("2 of 4 nodes have not reported"), HasSubstr(": 1, 3)")));
  EXPECT_THAT(failure([&] { second.get(); }), HasSubstr("does not say where the others are"));
}

TEST_F(NodeReport, IsRefusedOfAnotherJobAndOfANumberThatIsNone) {
  for (const auto& [number, job, text] : {std::tuple{1, "other", "another job"},
                                          {2, "d4c3", "the job has 2 nodes"},
                                          {0, "d4c3", "the job has 2 nodes"}}) {
    std::future<Hosts> collected = std::async(std::launch::async, [this] {
      return collect_reports(listener_, {.id = "d4c3", .count = 2}, in(std::chrono::seconds(20)));
    });

    EXPECT_THAT(failure([&] { node(number, job).get(); }), HasSubstr(text));
    node(1).get();  // the main node still waits for it
    EXPECT_THAT(collected.get(), SizeIs(2));
  }
}

TEST_F(NodeReport, OfANodeThatWasStartedAgainCountsOnce) {
  const auto report = [&](int number) {
    tcp::Connection connection =
        tcp::Connection::open(tcp::resolve("127.0.0.1", listener_.port()), std::chrono::seconds(5));
    connection.write(fmt::format("SMP-NODES/2 report d4c3 {}\n", number),
                     in(std::chrono::seconds(5)));
    return connection;
  };
  { const tcp::Connection gone = report(1); }
  tcp::Connection first = report(1);
  tcp::Connection second = report(2);

  EXPECT_THAT(collect_reports(listener_, {.id = "d4c3", .count = 3}, in(std::chrono::seconds(20))),
              SizeIs(3));
  for (tcp::Connection* node : {&first, &second}) {
    EXPECT_EQ(node->read_line(1024, in(std::chrono::seconds(5))), "SMP-NODES/2 main");
    EXPECT_EQ(node->read_line(1024, in(std::chrono::seconds(5))),
              "SMP-NODES/2 hosts 127.0.0.1,127.0.0.1,127.0.0.1");
  }
}

TEST_F(NodeReport, OfASecondNodeOfOneNumberIsRefusedWhileTheFirstIsThere) {
  const NodeJob job{.id = "d4c3", .count = 3};
  std::future<Hosts> collected =
      std::async(std::launch::async, [&] { return collect_reports(listener_, job, in(20s)); });
  std::future<Hosts> first = node(1);
  // Whichever comes second hears it, the other one is taken.
  std::future<Hosts> another = node(1);
  std::future<Hosts>& refused = first.wait_for(5s) == std::future_status::ready ? first : another;

  EXPECT_THAT(failure([&] { refused.get(); }), HasSubstr("node 1 has reported"));
  node(2).get();
  EXPECT_THAT(collected.get(), SizeIs(3));
}

TEST_F(NodeReport, OfWhoDoesNotKnowTheSecretIsNotTaken) {
  const auto secret = smp::JobSecret::given({{"SMP_JOB_SECRET", std::string(32, 'a')}});
  const NodeJob job{.id = "d4c3", .count = 2, .secret = secret};
  std::future<Hosts> collected =
      std::async(std::launch::async, [&] { return collect_reports(listener_, job, in(20s)); });

  EXPECT_THAT(failure([&] { node(1, "d4c3", 500ms).get(); }),
              HasSubstr("does not say where the others are"));
  EXPECT_THAT(report_to_main("127.0.0.1", listener_.port(), job, 1, in(20s)), SizeIs(2));
  EXPECT_THAT(collected.get(), SizeIs(2));
}

TEST_F(NodeReport, SilentStrangersDelayNoNode) {
  std::vector<tcp::Connection> silent;
  for (int i = 0; i < 10; ++i) {
    silent.push_back(tcp::Connection::open(tcp::resolve("127.0.0.1", listener_.port()), 5s));
  }
  std::future<Hosts> first = node(1);

  EXPECT_THAT(collect_reports(listener_, {.id = "d4c3", .count = 2}, in(4s)), SizeIs(2));
  first.get();
}

TEST(NodeReports, ToAMainNodeThatIsNotThereEndAtTheDeadline) {
  int port = 0;
  { port = tcp::Listener({"127.0.0.1"}, 0).port(); }

  EXPECT_THROW(
      report_to_main("127.0.0.1", port, {.id = "d4c3"}, 1, in(std::chrono::milliseconds(300))),
      smp::HostError);
}

}  // namespace
}  // namespace entrypoint
