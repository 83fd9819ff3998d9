// SPDX-License-Identifier: Apache-2.0
// Jobs with a secret, and strangers who reach their store and their groups.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "smp_runtime/core/error.h"
#include "smp_runtime/session/session.h"
#include "tests/unit/session/session_ranks.h"

namespace smp::session {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using topology::Group;

const Variables kSecret{{"SMP_TIMEOUT_SECONDS", "20"},
                        {"SMP_JOB_SECRET", "0123456789abcdef0123456789abcdef"}};

ThreadJob job_with_secret() { return {.variables = kSecret}; }

TEST(SessionWithSecret, RanksExchangeObjectsAndTensors) {
  const auto errors = job_with_secret().in_sessions([](Session& session) {
    const bool first = session.ranks().rank == 0;
    ObjectExchange& objects = session.objects();
    for (const std::string sent : {"one", "", "two"}) {
      if (first) {
        objects.broadcast("a test", Group::kWorld, sent);
      } else {
        EXPECT_EQ(objects.receive("a test", Group::kWorld, 0), sent);
      }
    }
    for (const std::string mine : {first ? "a" : "longer", first ? "" : "b"}) {
      EXPECT_EQ(objects.all_gather("a test", Group::kWorld, mine).at(first ? 0 : 1), mine);
    }
    EXPECT_EQ(objects.all_gather("a test", "some", {0, 1}, "x").size(), 2U);
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

/// As if a stranger overwrote each value of a key at once.
struct Overwritten : c10d::HashStore {
  using HashStore::set;
  void set(const std::string& key, const std::vector<std::uint8_t>& data) override {
    const std::string forged = R"({"microbatches": 7})";
    HashStore::set(key, key.ends_with("/settings")
                            ? std::vector<std::uint8_t>(forged.begin(), forged.end())
                            : data);
  }
};

TEST(SessionWithSecret, AValueOfAStrangerIsRefusedByItsName) {
  ThreadJob job = job_with_secret();
  job.store = c10::make_intrusive<Overwritten>();

  const auto errors = job.on_ranks([&](int rank) { const Session session(job.request(rank)); });

  EXPECT_THAT(errors, Each(AllOf(HasSubstr("\"smp/1/settings\""), HasSubstr("SMP_JOB_SECRET"))));
}

TEST(SessionWithSecret, ARankWithoutItIsTold) {
  const ThreadJob job = job_with_secret();
  const ThreadJob without{.store = job.store};

  const auto errors = job.on_ranks([&](int rank) {
    if (rank == 0) {
      agreed_store(job.store, 0, cluster::make_runtime_options(kSecret).secret);
    } else {
      const Session session(without.request(rank));
    }
  });

  EXPECT_THAT(errors[1], HasSubstr("rank 1 has no SMP_JOB_SECRET, and rank 0 has one"));
}

TEST(SessionWithSecret, AJobOnSeveralHostsMayBeRefusedWithoutOne) {
  ThreadJob job;
  job.variables["SM_LAUNCH_AUTH"] = "require";
  EXPECT_THAT(job.in_sessions([](Session&) {}), Each(IsEmpty())) << "all are on one host";

  job.number = 1;
  job.variables.insert(
      {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}});
  const auto errors = job.on_ranks([&](int rank) { const Session session(job.request(rank)); });

  EXPECT_THAT(errors,
              Each(AllOf(HasSubstr("SM_LAUNCH_AUTH is require"), HasSubstr("SMP_JOB_SECRET"))));
}

/// A group in which a stranger changes what a rank receives.
struct ForgedGroup : smddp::SmddpBackend {
  using SmddpBackend::SmddpBackend;

  static void forge(at::Tensor& tensor) {
    auto* const bytes = static_cast<std::uint8_t*>(tensor.data_ptr());
    bytes[tensor.nbytes() - 1] ^= 1;
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int source,
                                      int tag) override {
    auto work = SmddpBackend::recv(tensors, source, tag);
    work->wait();
    forge(tensors[0]);
    return work;
  }
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override {
    auto work = SmddpBackend::allgather(outputs, inputs, options);
    work->wait();
    forge(outputs[0][1]);
    return work;
  }
};

TEST(SessionWithSecret, ObjectsThatAStrangerChangedAreRefusedBeforeTheyAreOfUse) {
  const auto sent = job_with_secret().in_sessions<ForgedGroup>([](Session& session) {
    if (session.ranks().rank == 0) {
      session.objects().send("smp.send", Group::kWorld, "a pickle", 1);
      return;
    }
    static_cast<void>(session.objects().receive("smp.recv_from", Group::kWorld, 0));
  });
  const auto gathered = job_with_secret().in_sessions<ForgedGroup>([](Session& session) {
    static_cast<void>(session.objects().all_gather("smp.allgather", Group::kWorld, "a pickle"));
  });

  EXPECT_THAT(sent[1],
              AllOf(HasSubstr("smp.recv_from: bytes that came in place of those of rank 0"),
                    HasSubstr("the job's secret")));
  EXPECT_THAT(gathered, Each(HasSubstr("in place of those of rank 1")));
}

}  // namespace
}  // namespace smp::session
