// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/parameter_store.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/sharding/remote_values.h"
#include "smp_runtime/sharding/replica_all_reduce.h"
#include "smp_runtime/sharding/shard_groups.h"
#include "tests/unit/session/session_ranks.h"

namespace smp::sharding {
namespace {

using session::Session;
using session::ThreadJob;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

const ThreadJob kTwoShards{
    .size = 2,
    .settings = "ddp=True,sharded_data_parallel_degree=2,sdp_param_persistence_threshold=0"};

/// Of sizes that no degree divides.
std::vector<at::Tensor> initial_values() {
  return {at::arange(701, at::kFloat).mul(0.1),
          at::arange(1551, at::kFloat).view({47, 33}).sub(3.3), at::arange(1, at::kFloat).add(9)};
}
constexpr std::int64_t kElements = 701 + 1551 + 1;

/// Two modules: of the first two parameters and of the last one.
struct Stored {
  explicit Stored(Session& session) {
    const auto plan = plan_shards(session.config(), session.mesh());
    const auto groups = make_shard_groups(session, *plan);
    std::vector<StoredParameter> stored;
    for (const at::Tensor& value : initial_values()) {
      parameters.push_back(value.set_requires_grad(true));
      const int number = static_cast<int>(stored.size());
      stored.push_back({.tensor = parameters.back(),
                        .name = "p" + std::to_string(number),
                        .block = number == 2 ? 1 : 0});
    }
    store.emplace(store_options(session, *plan, groups, kElements), std::move(stored),
                  std::vector<std::string>{"first", "second"});
  }

  /// Values of all parameters, of the masters.
  std::vector<at::Tensor> whole() {
    std::vector<at::Tensor> values(parameters.size());
    for (std::size_t unit = 0; unit < store->layouts().size(); ++unit) {
      const std::vector<at::Tensor> of_unit =
          store->whole_unit(static_cast<int>(unit), store->masters());
      const auto& placed = store->layouts()[unit].parameters;
      for (std::size_t i = 0; i < placed.size(); ++i) {
        values[static_cast<std::size_t>(placed[i].parameter)] = of_unit[i];
      }
    }
    return values;
  }

  /// Sums what the parameters hold, by `scale`, in a step of one microbatch, and goes back.
  void train(double scale) {
    store->begin_pass(/*training=*/true);
    store->begin_step(/*due=*/true, /*backwards=*/1);
    std::vector<int> units(store->layouts().size());
    for (std::size_t unit = 0; unit < units.size(); ++unit) units[unit] = static_cast<int>(unit);
    store->enter(units);
    at::Tensor loss;
    for (const at::Tensor& parameter : parameters) {
      const at::Tensor part = parameter.mul(scale).sum();
      loss = loss.defined() ? loss + part : part;
    }
    store->leave({loss}, /*failed=*/false);
    loss.backward();
    store->end_backward();
    store->finish_step(/*due=*/true);
  }

  std::vector<at::Tensor> parameters;
  std::optional<ParameterStore> store;
};

TEST(ParameterStore, UnevenShardsMakeThePlainValuesToTheBit) {
  const auto errors = kTwoShards.in_sessions([](Session& session) {
    Stored stored(session);

    const std::vector<at::Tensor> whole = stored.whole();

    const std::vector<at::Tensor> expected = initial_values();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(at::equal(whole[i], expected[i])) << i;
    }
    std::int64_t owned = 0;
    for (const OwnedPiece& piece : stored.store->pieces()) owned += piece.elements;
    EXPECT_LT(owned, kElements) << "a part of all elements";
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(ParameterStore, ModulesSeeMastersFromTheirPublicationOn) {
  const auto errors = kTwoShards.in_sessions([](Session& session) {
    Stored stored(session);
    for (const at::Tensor& master : stored.store->masters()) master.mul_(2);
    EXPECT_FALSE(stored.store->is_published());

    stored.store->publish();

    EXPECT_TRUE(stored.store->is_published());
    stored.store->set_alike(true);
    const std::vector<at::Tensor> before = initial_values();
    for (std::size_t i = 0; i < before.size(); ++i) {
      EXPECT_TRUE(at::equal(stored.parameters[i], before[i] * 2)) << i;
    }
    stored.store->set_alike(false);
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(ParameterStore, GradientsAreTheMeanOverAllRanks) {
  const auto errors = kTwoShards.in_sessions([](Session& session) {
    Stored stored(session);
    EXPECT_FALSE(stored.store->has_gradients());

    stored.train(session.ranks().rank + 1);

    EXPECT_TRUE(stored.store->has_gradients());
    const std::vector<at::Tensor> gradients = stored.store->gradients();
    for (const OwnedPiece& piece : stored.store->pieces()) {
      const at::Tensor part =
          gradients[static_cast<std::size_t>(piece.arena)].narrow(0, piece.offset, piece.elements);
      EXPECT_TRUE(at::equal(part, at::full_like(part, 1.5))) << piece.parameter;
    }
    EXPECT_THAT(stored.store->unreached(), IsEmpty());
    EXPECT_EQ(stored.store->not_finite(), "");
    stored.store->zero_gradients();
    EXPECT_FALSE(stored.store->has_gradients());
    EXPECT_THAT(stored.store->unreached(), ElementsAre(0, 1, 2));
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(ParameterStore, NamesAParameterWhoseGradientIsNotFinite) {
  const auto errors = kTwoShards.in_sessions([](Session& session) {
    Stored stored(session);

    stored.train(session.ranks().rank == 0 ? INFINITY : 1.0);

    EXPECT_THAT(stored.store->not_finite(), HasSubstr("p")) << "on the rank that owns it, too";
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(ParameterStore, RefusesAReadThatNotAllRanksMake) {
  const auto errors = kTwoShards.in_sessions([](Session& session) {
    Stored stored(session);

    EXPECT_THAT([&] { static_cast<void>(stored.parameters[0] + 1); },
                ThrowsMessage<UserCodeError>(HasSubstr("p0")));
    EXPECT_EQ(stored.parameters[1].sizes(), (std::vector<std::int64_t>{47, 33}))
        << "its shape is known all the same";
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(ParameterStore, AnAssignedValueIsTheMastersPartOfIt) {
  const auto errors = kTwoShards.in_sessions([](Session& session) {
    Stored stored(session);
    const at::Tensor value = at::arange(701, at::kFloat).add(100);

    stored.store->assign(0, value);
    stored.store->publish();

    EXPECT_TRUE(at::equal(stored.whole()[0], value));
    EXPECT_TRUE(at::equal(stored.whole()[1], initial_values()[1]));
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(RemoteValues, HaveShapeAndTypeAndFailByNameWhereTheyAreRead) {
  RemoteValues remote([](const std::exception_ptr& error) { std::rethrow_exception(error); });
  const at::Tensor like = at::arange(2, at::kBFloat16);

  const at::Tensor absent = remote.placeholder(like, {4, 2}, "head.weight", 3);

  EXPECT_EQ(absent.sizes(), (std::vector<std::int64_t>{4, 2}));
  EXPECT_EQ(absent.scalar_type(), at::kBFloat16);
  EXPECT_THAT([&] { static_cast<void>(absent + 1); },
              ThrowsMessage<UserCodeError>(
                  HasSubstr("parameter head.weight was read or written, and its values are on "
                            "partition 3, not here")));
}

/// A unit of one arena.
ShardedUnit a_unit(std::int64_t offset, std::int64_t shard, bool trained = true,
                   bool persistent = false) {
  ShardedUnit unit;
  unit.layout.degree = 2;
  unit.layout.shard = shard;
  unit.layout.persistent = persistent;
  unit.trained = trained;
  unit.arena_offset = offset;
  return unit;
}

TEST(ReplicaChunks, JoinNeighboursUpToABucketFromTheLastUnitOn) {
  std::vector<ShardedUnit> units;
  units.push_back(a_unit(0, 4));
  units.push_back(a_unit(4, 4));
  units.push_back(a_unit(8, 4));

  const std::vector<ReplicaChunk> chunks = plan_chunks(units, /*bucket=*/16);

  EXPECT_THAT(chunks, ElementsAre(ReplicaChunk{.offset = 4, .elements = 8, .units = {2, 1}},
                                  ReplicaChunk{.offset = 0, .elements = 4, .units = {0}}));
}

TEST(ReplicaChunks, LeaveFrozenUnitsOutAndPersistentOnesToTheEnd) {
  std::vector<ShardedUnit> units;
  units.push_back(a_unit(0, 4));
  units.push_back(a_unit(4, 4, /*trained=*/false));
  units.push_back(a_unit(8, 4));
  units.push_back(a_unit(12, 2, /*trained=*/true, /*persistent=*/true));

  const std::vector<ReplicaChunk> chunks = plan_chunks(units, /*bucket=*/1000);

  EXPECT_THAT(chunks, ElementsAre(ReplicaChunk{.offset = 8, .elements = 4, .units = {2}},
                                  ReplicaChunk{.offset = 0, .elements = 4, .units = {0}},
                                  ReplicaChunk{.offset = 12, .elements = 2, .units = {3}}));
}

}  // namespace
}  // namespace smp::sharding
