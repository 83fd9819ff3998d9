// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/backend/smddp_backend.h"

#include <chrono>
#include <numeric>
#include <thread>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace smp::smddp {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Tensors = std::vector<at::Tensor>;

/// Runs `body` as each rank of a group, on a thread of its own. Returns what each threw, "" for
/// nothing. Ranks of the job have ten more than those of the group.
std::vector<std::string> on_ranks(int size, const std::function<void(SmddpBackend&)>& body,
                                  std::chrono::milliseconds timeout = 20s) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::int64_t> names(static_cast<std::size_t>(size));
  std::iota(names.begin(), names.end(), 10);
  std::vector<std::string> errors(names.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto group = c10::make_intrusive<SmddpBackend>(store, rank, size, timeout, names);
        body(*group);
        group->shutdown();
      } catch (const c10::Error& error) {
        errors[static_cast<std::size_t>(rank)] = error.what_without_backtrace();
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

/// Values of a rank, whose sums depend on their order.
at::Tensor values_of(int rank, std::int64_t elements) {
  return at::arange(elements, at::kFloat)
      .mul(1e3)
      .add(rank * 7.0 + 0.1)
      .sin()
      .mul(1e4 / (rank + 1));
}

/// The message of what `call` throws.
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

c10d::AllreduceOptions by(c10d::ReduceOp::RedOpType operation) {
  c10d::AllreduceOptions options;
  options.reduceOp = operation;
  return options;
}

TEST(SmddpBackend, AddsUpInTheOrderOfRanksToTheBit) {
  for (const std::int64_t elements : {1, 1000, 100'003}) {  // with the headers, and in chunks
    const at::Tensor sum = values_of(0, elements) + values_of(1, elements) + values_of(2, elements);

    const auto errors = on_ranks(3, [&](SmddpBackend& group) {
      Tensors tensors{values_of(group.getRank(), elements)};
      group.allreduce(tensors, by(c10d::ReduceOp::SUM))->wait();
      EXPECT_TRUE(at::equal(tensors[0], sum)) << elements;
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
  }
}

TEST(SmddpBackend, AveragesIntegersTowardsZeroWhereTheirSumWouldWrap) {
  const auto errors = on_ranks(2, [](SmddpBackend& group) {
    const bool first = group.getRank() == 0;
    Tensors tensors{at::tensor({first ? 127 : 127, first ? -3 : -2}).to(at::kChar)};
    group.allreduce(tensors, by(c10d::ReduceOp::AVG))->wait();
    EXPECT_TRUE(at::equal(tensors[0], at::tensor({127, -2}).to(at::kChar)));
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(SmddpBackend, WritesIntoTensorsThatAreNotContiguous) {
  const auto errors = on_ranks(2, [](SmddpBackend& group) {
    const at::Tensor whole = at::zeros({4, 6});
    Tensors columns{whole.t().narrow(0, 1, 2)};
    columns[0].fill_(group.getRank() + 1);
    group.allreduce(columns, by(c10d::ReduceOp::SUM))->wait();
    EXPECT_TRUE(at::equal(whole.narrow(1, 1, 2), at::full({4, 2}, 3.0)));
    EXPECT_EQ(whole.sum().item<double>(), 24.0) << "nothing beside them is written";
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(SmddpBackend, GathersUnevenTensorsToTheBit) {
  const auto errors = on_ranks(3, [](SmddpBackend& group) {
    Tensors expected;
    std::vector<Tensors> outputs(1);
    for (int rank = 0; rank < 3; ++rank) {
      expected.push_back(values_of(rank, 5 + 20'000 * rank));
      outputs[0].push_back(at::zeros_like(expected.back()));
    }
    Tensors inputs{expected[static_cast<std::size_t>(group.getRank())]};
    group.allgather(outputs, inputs, {})->wait();
    for (std::size_t rank = 0; rank < 3; ++rank) {
      EXPECT_TRUE(at::equal(outputs[0][rank], expected[rank])) << rank;
    }
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(SmddpBackend, ScattersUnevenSumsToTheBit) {
  const auto part = [](int rank, int to) { return values_of(3 * rank + to, 5 + 1000 * to); };

  const auto errors = on_ranks(3, [&](SmddpBackend& group) {
    std::vector<Tensors> inputs(1);
    for (int to = 0; to < 3; ++to) inputs[0].push_back(part(group.getRank(), to));
    const int self = group.getRank();
    Tensors outputs{at::zeros({5 + 1000 * self})};
    group.reduce_scatter(outputs, inputs, {})->wait();
    EXPECT_TRUE(at::equal(outputs[0], part(0, self) + part(1, self) + part(2, self)));
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(SmddpBackend, SwapsUnevenParts) {
  // Rank r sends r + 1 elements to rank 0 and 2 to rank 1.
  const auto errors = on_ranks(2, [](SmddpBackend& group) {
    const int self = group.getRank();
    at::Tensor input = at::arange(self + 3, at::kLong).add(100 * self);
    at::Tensor output = at::zeros({self == 0 ? 3 : 4}, at::kLong);
    std::vector<std::int64_t> sent{self + 1, 2};
    std::vector<std::int64_t> received =
        self == 0 ? std::vector<std::int64_t>{1, 2} : std::vector<std::int64_t>{2, 2};
    group.alltoall_base(output, input, received, sent, {})->wait();
    EXPECT_TRUE(at::equal(
        output, self == 0 ? at::tensor({0L, 100L, 101L}) : at::tensor({1L, 2L, 102L, 103L})));
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(SmddpBackend, BroadcastsGathersAndScattersFromTheRoot) {
  const auto errors = on_ranks(3, [](SmddpBackend& group) {
    const int self = group.getRank();
    Tensors one{at::full({2}, self, at::kInt)};
    c10d::BroadcastOptions from;
    from.rootRank = 2;
    group.broadcast(one, from)->wait();
    EXPECT_TRUE(at::equal(one[0], at::full({2}, 2, at::kInt)));

    Tensors own{at::full({1}, self, at::kInt)};
    std::vector<Tensors> all;
    if (self == 1)
      all.push_back({at::zeros({1}, at::kInt), at::zeros({1}, at::kInt), at::zeros({1}, at::kInt)});
    c10d::GatherOptions to;
    to.rootRank = 1;
    group.gather(all, own, to)->wait();
    if (self == 1) {
      EXPECT_TRUE(at::equal(at::cat(all[0]), at::arange(3, at::kInt)));
    }

    std::vector<Tensors> parts;
    if (self == 0) parts.push_back({own[0] + 5, own[0] + 6, own[0] + 7});
    group.scatter(own, parts, {})->wait();
    EXPECT_EQ(own[0].item<int>(), 5 + self);
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(SmddpBackend, AddsUpSparseTensorsAlikeOnAllRanks) {
  const auto errors = on_ranks(2, [](SmddpBackend& group) {
    const bool first = group.getRank() == 0;
    const at::Tensor rows = first ? at::tensor({0L, 3L}) : at::tensor({3L, 4L});
    Tensors tensors{
        at::sparse_coo_tensor(rows.unsqueeze(0), at::full({2, 2}, first ? 1.0 : 2.0), {6, 2})};
    group.allreduce(tensors, by(c10d::ReduceOp::SUM))->wait();
    const at::Tensor dense = tensors[0].to_dense();
    EXPECT_TRUE(at::equal(dense.select(1, 1), at::tensor({1.0, 0.0, 0.0, 3.0, 2.0, 0.0})));
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(SmddpBackend, RanksInDifferentCallsNameBothOnAllRanks) {
  const auto errors = on_ranks(3, [](SmddpBackend& group) {
    Tensors tensors{at::ones({4})};
    if (group.getRank() == 1) {
      group.broadcast(tensors, {})->wait();
    } else {
      group.allreduce(tensors, by(c10d::ReduceOp::SUM))->wait();
    }
  });

  EXPECT_THAT(errors, Each(AllOf(HasSubstr("do not make the same call"),
                                 HasSubstr("rank(s) 10, 12 called all_reduce #0 of float32 [4]"),
                                 HasSubstr("rank(s) 11 called broadcast #0 of float32 [4]"))));
}

TEST(SmddpBackend, NamesTheRankThatDoesNotCome) {
  std::atomic<int> over{0};
  const auto errors = on_ranks(3, [&](SmddpBackend& group) {
    if (group.getRank() == 2) {
      while (over < 2) std::this_thread::sleep_for(5ms);
      return;
    }
    group.setTimeout(200ms);
    Tensors tensors{at::ones({4})};
    const std::string error =
        error_of([&] { group.allreduce(tensors, by(c10d::ReduceOp::SUM))->wait(); });
    ++over;
    EXPECT_THAT(error, AllOf(HasSubstr("smddp: "), HasSubstr("rank(s) 12")));
    EXPECT_EQ(group.getError(), c10d::ErrorType::COMM_ERROR);
  });

  EXPECT_THAT(errors[0], IsEmpty());
  EXPECT_THAT(errors[1], IsEmpty());
}

TEST(SmddpBackend, AMonitoredBarrierNamesAllThatAreMissing) {
  std::atomic<bool> over{false};
  const auto errors = on_ranks(3, [&](SmddpBackend& group) {
    if (group.getRank() > 0) {
      while (!over) std::this_thread::sleep_for(5ms);
      return;
    }
    c10d::BarrierOptions options;
    options.timeout = 200ms;
    const std::string error = error_of([&] { group.monitoredBarrier(options, true); });
    over = true;
    EXPECT_THAT(error, HasSubstr("waited 200 ms for rank(s) 11, 12, which did not take part"));
  });

  EXPECT_THAT(errors[0], IsEmpty());
}

TEST(SmddpBackend, ARankThatAbortsFailsTheCallsOfAllOthers) {
  const auto errors = on_ranks(2, [&](SmddpBackend& group) {
    if (group.getRank() == 1) {
      group.abort();
      return;
    }
    Tensors tensors{at::ones({4})};
    EXPECT_THAT(error_of([&] { group.allreduce(tensors, by(c10d::ReduceOp::SUM))->wait(); }),
                HasSubstr("rank 11 aborted the group"));
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(SmddpBackend, RefusesArgumentsThatCanNeverWorkBeforeAnybodyWaits) {
  const auto errors = on_ranks(1, [](SmddpBackend& group) {
    Tensors two{at::ones({1}), at::ones({1})};
    EXPECT_THAT(error_of([&] { group.allreduce(two, by(c10d::ReduceOp::SUM)); }),
                HasSubstr("all_reduce takes one tensor, got 2"));
    Tensors floats{at::ones({1})};
    EXPECT_THAT(error_of([&] { group.allreduce(floats, by(c10d::ReduceOp::BAND)); }),
                HasSubstr("cannot reduce float32 tensors with band"));
    at::Tensor whole = at::ones({3});
    at::Tensor part = at::ones({2});
    EXPECT_THAT(error_of([&] { group._allgather_base(whole, part, {}); }),
                HasSubstr("all_gather_into_tensor: Float [3] is not 1 times Float [2]"));
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(SmddpBackend, MessagesKeepTheirOrderWithinAPairAndTag) {
  const auto errors = on_ranks(2, [](SmddpBackend& group) {
    Tensors first{at::zeros({3})};
    Tensors second{at::zeros({50'000})};
    Tensors tagged{at::zeros({1})};
    if (group.getRank() == 0) {
      first[0].fill_(1);
      second[0].fill_(2);
      tagged[0].fill_(3);
      std::vector<c10::intrusive_ptr<c10d::Work>> works;
      works.push_back(group.send(first, 1, 0));
      works.push_back(group.send(second, 1, 0));
      works.push_back(group.send(tagged, 1, 7));
      for (const auto& work : works) work->wait();
      return;
    }
    group.recv(tagged, 0, 7)->wait();  // though it was sent last
    const auto work = group.recvAnysource(first, 0);
    work->wait();
    group.recv(second, 0, 0)->wait();
    EXPECT_EQ(tagged[0].item<float>(), 3);
    EXPECT_TRUE(at::equal(first[0], at::full({3}, 1.0)));
    EXPECT_TRUE(at::equal(second[0], at::full({50'000}, 2.0)));
    EXPECT_EQ(work->sourceRank(), 0);
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(SmddpBackend, CoalescedCallsAreOneWork) {
  const auto errors = on_ranks(2, [](SmddpBackend& group) {
    Tensors first{at::ones({2})};
    Tensors second{at::ones({3})};
    group.startCoalescing();
    group.allreduce(first, by(c10d::ReduceOp::SUM));
    group.allreduce(second, by(c10d::ReduceOp::MAX));
    const auto work = group.endCoalescing();
    work->wait();
    EXPECT_TRUE(work->isCompleted());
    EXPECT_TRUE(at::equal(first[0], at::full({2}, 2.0)));
    EXPECT_TRUE(at::equal(second[0], at::ones({3})));
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(SmddpBackend, AFutureHasTheResultsAndItsCallbackMayWaitForOtherWork) {
  const auto errors = on_ranks(2, [](SmddpBackend& group) {
    Tensors first{at::ones({2})};
    Tensors second{at::ones({2})};
    const auto work = group.allreduce(first, by(c10d::ReduceOp::SUM));
    const auto other = group.allreduce(second, by(c10d::ReduceOp::SUM));
    const auto then = work->getFuture()->then(
        [other](c10::ivalue::Future& future) {
          other->wait();
          return future.value();
        },
        c10::ListType::ofTensors());
    then->wait();
    EXPECT_TRUE(at::equal(then->value().toTensorVector()[0], at::full({2}, 2.0)));
    EXPECT_EQ(group.getSequenceNumberForGroup(), 2);
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(SmddpBackend, SplitsIntoGroupsThatKeepTheNamesOfTheirRanks) {
  const auto parts = c10::make_intrusive<c10d::HashStore>();
  const auto errors = on_ranks(3, [&](SmddpBackend& group) {
    const auto part = group.split(parts, {0, 2}, nullptr);
    if (group.getRank() == 1) {
      EXPECT_EQ(part, nullptr);
      return;
    }
    Tensors tensors{at::ones({1})};
    part->allreduce(tensors, by(c10d::ReduceOp::SUM))->wait();
    EXPECT_EQ(tensors[0].item<float>(), 2);
    if (part->getRank() == 0) {
      const std::string error = error_of([&] {
        c10d::BarrierOptions options;
        options.timeout = 200ms;
        part->monitoredBarrier(options, true);
      });
      EXPECT_THAT(error, HasSubstr("rank(s) 12"));
    }
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(SmddpBackend, ATimeoutThatLetsNobodyComeIsRefusedOnAllRanks) {
  EXPECT_THAT(on_ranks(
                  1, [](SmddpBackend&) {}, 0ms)[0],
              HasSubstr("the timeout of a group is 0 ms, which lets nobody come"));
}

}  // namespace
}  // namespace smp::smddp
