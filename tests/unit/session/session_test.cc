// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/session/session.h"

#include <filesystem>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/file.h"
#include "smp_runtime/core/tcp.h"
#include "smp_runtime/session/group_failure.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"
#include "tests/unit/session/session_ranks.h"

namespace smp::session {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using topology::Group;

TEST(Session, KnowsItsRanksAndThoseOfItsHost) {
  const ThreadJob job{.size = 3};

  const auto errors = job.in_sessions([](Session& session) {
    EXPECT_EQ(session.ranks().size, 3);
    EXPECT_EQ(session.ranks().local_size, 3) << "all are on this host, which nobody has said";
    EXPECT_EQ(session.ranks().local_rank, session.ranks().rank);
    EXPECT_EQ(session.layout_of({0, 2}).hosts(), 1);
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(Session, NamesTheSettingsThatDifferBetweenRanks) {
  const ThreadJob job{.variables = {{"SMP_TIMEOUT_SECONDS", "5"}}};

  const auto errors = job.on_ranks([&](int rank) {
    const Session session(job.request(rank, rank == 0 ? "microbatches=2" : "microbatches=4"));
  });

  EXPECT_THAT(errors[0], IsEmpty());
  EXPECT_THAT(errors[1], AllOf(HasSubstr("rank 1 and rank 0 have different settings: "),
                               HasSubstr("microbatches is 4 here and 2 there")));
}

TEST(Session, RefusesAWorldThatPartitionsDoNotDivideBeforeItWaits) {
  const ThreadJob job{.size = 3, .settings = "pipeline_parallel_degree=2"};

  EXPECT_THROW(Session(job.request(0)), ConfigError) << "no other rank is there";
}

TEST(Session, TellsWhatTheFirstRankHas) {
  const ThreadJob job{.size = 3};

  const auto errors = job.in_sessions([](Session& session) {
    EXPECT_EQ(session.told_by_first("seed", std::to_string(session.ranks().rank + 7)), "7");
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(Session, BeginsAndEndsTwiceInOneStore) {
  ThreadJob job{.settings = "ddp=True"};
  for (job.number = 0; job.number < 2; ++job.number) {
    const auto errors = job.in_sessions([&](Session& session) {
      const std::string expected = "first " + std::to_string(job.number);
      EXPECT_EQ(session.told_by_first("key", expected), expected);
      EXPECT_EQ(session.objects().all_gather("a test", Group::kWorld, expected),
                (std::vector{expected, expected}));
      at::Tensor sum = at::full({3}, session.ranks().rank + 1.0);
      session.all_reduce("a sum", sum, *session.groups().user_group(Group::kDp),
                         c10d::ReduceOp::SUM);
      EXPECT_TRUE(at::equal(sum, at::full({3}, 3.0)));
    });
    EXPECT_THAT(errors, Each(IsEmpty())) << "session " << job.number;
  }
}

TEST(Session, FreesItsPortThoughSomebodyKeepsItsStore) {
  const std::string port = std::to_string(tcp::Listener({"127.0.0.1"}, 0).port());
  ThreadJob job;
  std::mutex mutex;
  std::vector<StorePtr> kept;
  for (job.number = 0; job.number < 2; ++job.number) {
    const auto errors = job.on_ranks([&](int rank) {
      const std::string own = std::to_string(rank);
      const Variables variables = {
          {"MASTER_ADDR", "127.0.0.1"},        {"MASTER_PORT", port},
          {"OMPI_COMM_WORLD_RANK", own},       {"OMPI_COMM_WORLD_SIZE", "2"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", own}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
          {"SMP_TIMEOUT_SECONDS", "20"}};
      SessionRequest request = job.request(rank);
      request.options = cluster::make_runtime_options(variables);
      request.variables = variables;
      request.store = nullptr;
      request.world.reset();
      Session session(std::move(request));
      {
        const std::scoped_lock lock(mutex);
        kept.push_back(session.world_store());
      }
      session.leave(/*failed=*/false, /*serves=*/true);
    });
    EXPECT_THAT(errors, Each(IsEmpty())) << "session " << job.number;
  }
  EXPECT_EQ(kept.size(), 4U);
}

TEST(Session, OneThatLeftWellIsKnownAndOneThatFailedIsNot) {
  for (const bool failed : {false, true}) {
    const ThreadJob job;
    const auto errors = job.on_ranks([&](int rank) {
      Session session(job.request(rank));
      if (rank == 1) {
        session.leave(failed, /*serves=*/false);
        return;
      }
      session.store()->wait({"left/1"});
      EXPECT_EQ(session.some_rank_ended_well(), !failed);
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
  }
}

TEST(Session, KeepsARecordWhereTheEnvironmentWantsOne) {
  const testing_support::TemporaryFolder folder;
  const std::filesystem::path records = folder.path() / "records";
  const ThreadJob job{
      .variables = {{"SMP_TIMEOUT_SECONDS", "20"}, {"SMP_RECORDS", records.string()}}};

  const auto errors = job.in_sessions([](Session& session) {
    ASSERT_NE(session.recorder(), nullptr);
    session.recorder()->note("shown", std::to_string(session.ranks().rank));
    session.recorder()->close();
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
  EXPECT_THAT(read_text(records / "rank-0.jsonl"), HasSubstr(R"({"shown":0})"));
  EXPECT_THAT(read_text(records / "rank-1.jsonl"), HasSubstr(R"({"shown":1})"));
}

TEST(Session, ASumNamesTheRankThatDidNotCome) {
  const ThreadJob job{.size = 3, .settings = "ddp=True"};

  const auto errors = job.on_ranks([&](int rank) {
    Session session(job.request(rank));
    session.open_groups({.tensors = "smddp", .cpu = "smddp", .by_host = {}},
                        smddp_groups(session.world_store(), rank));
    if (rank == 1) {
      session.store()->wait({"over/0", "over/2"});
      return;
    }
    const GroupPtr group = session.groups().user_group(Group::kWorld);
    group->getBackend(c10::DeviceType::CPU)->setTimeout(std::chrono::milliseconds(300));
    at::Tensor sum = at::full({3}, 1.0);
    try {
      session.all_reduce("a sum of losses", sum, *group, c10d::ReduceOp::SUM);
    } catch (...) {
      session.store()->set("over/" + std::to_string(rank), std::string());
      throw;
    }
  });

  EXPECT_THAT(errors[0], AllOf(HasSubstr("a sum of losses over ranks 0, 1, 2 of the job failed"),
                               HasSubstr("rank(s) 1")));
  EXPECT_THAT(errors[1], IsEmpty());
  EXPECT_THAT(errors[2], HasSubstr("a sum of losses over ranks 0, 1, 2 of the job failed"));
}

TEST(Groups, OfTheSameRanksAndPurposeAreOne) {
  const ThreadJob job{.size = 2, .settings = "ddp=True"};

  const auto errors = job.in_sessions([](Session& session) {
    Groups& groups = session.groups();
    EXPECT_EQ(groups.internal_group(Group::kDp), groups.internal_group(Group::kWorld));
    EXPECT_NE(groups.internal_group(Group::kDp), groups.user_group(Group::kDp));
    EXPECT_EQ(groups.cpu_group(Group::kDp)->getGroupDesc(), "ranks 0, 1");
    EXPECT_THAT(session.barriers().watch()->members(groups.cpu_group(Group::kDp)->getGroupName()),
                ElementsAre(0, 1));
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(Groups, AStoreForOneThingIsNewEachTime) {
  const ThreadJob job;

  const auto errors = job.in_sessions([](Session& session) {
    const StorePtr first = session.groups().new_store(Group::kWorld, "a test");
    const StorePtr second = session.groups().new_store(Group::kWorld, "a test");
    first->set(std::to_string(session.ranks().rank), std::string("first"));
    first->wait({"0", "1"});
    EXPECT_FALSE(second->check({"0"}));
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(ObjectExchange, KeepsTheOrderBetweenTwoRanks) {
  const ThreadJob job;

  const auto errors = job.in_sessions([](Session& session) {
    ObjectExchange& objects = session.objects();
    const std::vector<std::string> sent{"first", "", std::string(100'000, 'x')};
    for (const std::string& one : sent) {
      if (session.ranks().rank == 0) {
        objects.send("a test", Group::kWorld, one, 1);
      } else {
        EXPECT_EQ(objects.receive("a test", Group::kWorld, 0), one);
      }
    }
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(ObjectExchange, KeepsWhatARankSendsToItself) {
  const ThreadJob job;

  const auto errors = job.in_sessions([](Session& session) {
    ObjectExchange& objects = session.objects();
    const int self = session.ranks().rank;
    objects.send("a test", Group::kWorld, "first", self);
    objects.send("a test", Group::kWorld, "second", self);
    EXPECT_EQ(objects.take_own(Group::kDp), std::nullopt) << "of another kind";
    EXPECT_EQ(objects.take_own(Group::kWorld), "first");
    EXPECT_EQ(objects.take_own(Group::kWorld), "second");
    EXPECT_EQ(objects.take_own(Group::kWorld), std::nullopt);
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(ObjectExchange, BroadcastsToAllOthersAndGathersDifferentSizes) {
  const ThreadJob job{.size = 3};

  const auto errors = job.in_sessions([](Session& session) {
    ObjectExchange& objects = session.objects();
    const int rank = session.ranks().rank;
    if (rank == 2) {
      objects.broadcast("a test", Group::kWorld, "to all");
    } else {
      EXPECT_EQ(objects.receive("a test", Group::kWorld, 2), "to all");
    }
    const std::string mine(static_cast<std::size_t>(rank) * 1000, static_cast<char>('a' + rank));
    EXPECT_EQ(objects.all_gather("a test", Group::kWorld, mine),
              (std::vector<std::string>{"", std::string(1000, 'b'), std::string(2000, 'c')}));
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(ObjectExchange, NamesTheRankThatDoesNotReceive) {
  const ThreadJob job;

  const auto errors = job.in_sessions([](Session& session) {
    if (session.ranks().rank == 1) return;
    session.barriers().set_timeout(std::chrono::milliseconds(200));
    try {
      session.objects().send("smp.send", Group::kWorld, "bytes", 1);
      FAIL() << "nobody has received";
    } catch (const WaitTimeout& error) {
      EXPECT_THAT(error.what(), HasSubstr("smp.send: rank 0 waited 0.2 s for rank 1"));
    }
    session.barriers().set_timeout(std::chrono::seconds(20));
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(StoreBarriers, TwoRanksInDifferentCallsNameBoth) {
  constexpr DeadlockDetector::Timing kQuick{.tell = std::chrono::milliseconds(20),
                                            .judge = std::chrono::milliseconds(40),
                                            .poll = std::chrono::milliseconds(5),
                                            .confirmations = 3};
  const ThreadJob job;

  const auto errors = job.on_ranks([&](int rank) {
    StoreBarriers barriers(
        job.store, rank, 2, std::chrono::seconds(20),
        std::make_shared<DeadlockDetector>(
            std::make_shared<C10dStore>(job.store), rank, [] { return std::string(); }, kQuick));
    barriers.all(rank == 0 ? "model.state_dict()" : "smp.barrier",
                 rank == 0 ? "state_dict" : "barrier", {0, 1});
  });

  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("rank 0 waits in model.state_dict()"),
                             HasSubstr("rank 1 waits in smp.barrier")));
  }
}

TEST(GroupFailure, DescribesManyRanksByTheFirstThreeAndTheLast) {
  std::vector<int> ranks(20);
  std::iota(ranks.begin(), ranks.end(), 0);

  EXPECT_EQ(described({4}), "rank 4");
  EXPECT_EQ(described({0, 2, 4}), "ranks 0, 2, 4");
  EXPECT_EQ(described(ranks), "ranks 0, 1, 2, ..., 19");
  EXPECT_EQ(one_of_others({1, 2}, 2), "rank 1");
  EXPECT_EQ(one_of_others({0, 1, 2}, 1), "one of ranks 0, 2");
}

}  // namespace
}  // namespace smp::session
