// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/engine/activation_store.h"

#include <thread>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/pipeline/engine/activation_arena.h"

namespace smp::pipeline {
namespace {

using Handles = std::vector<std::shared_ptr<ActivationStore::Handle>>;
constexpr int64_t kElements = 1 << 18;  // 1 MiB
constexpr int64_t kBytes = kElements * 4;

at::Tensor filled(double value) { return at::full({kElements}, value, at::kFloat); }

/// Puts tensors that hold 0, 1, … and waits until none is left in fast memory.
Handles put_and_settle(ActivationStore& store, int count, int64_t microbatch = 0, int first = 0) {
  Handles handles;
  for (int i = 0; i < count; ++i) handles.push_back(store.put(filled(first + i), microbatch));
  while (store.stats().fast_bytes > 0) std::this_thread::yield();
  return handles;
}

void expect_value(const at::Tensor& tensor, double value) {
  EXPECT_TRUE(tensor.eq(value).all().item<bool>()) << "expected " << value;
}

TEST(ActivationStore, GivesBackWhatWasPutInAnyOrder) {
  for (const int64_t horizon : {1, 2, 100}) {
    ActivationStore store({.horizon = horizon});
    const Handles handles = put_and_settle(store, 8);
    EXPECT_EQ(store.stats().slow_bytes, 8 * kBytes);

    for (const int index : {3, 7, 0, 6, 5, 1, 2, 4}) expect_value(handles[index]->take(), index);

    EXPECT_EQ(store.stats().taken, 8);
    while (store.stats().fast_bytes > 0) std::this_thread::yield();
    EXPECT_EQ(store.stats().slow_bytes, 0);
  }
}

TEST(ActivationStore, GivesBackWhatHasNotLeftYet) {
  ActivationStore store({.horizon = 1, .bytes_per_second = kBytes * 20});
  Handles handles;
  for (int i = 0; i < 4; ++i) handles.push_back(store.put(filled(i), 0));

  for (int i = 3; i >= 0; --i) expect_value(handles[i]->take(), i);

  EXPECT_EQ(store.stats().fast_bytes, 0);
}

TEST(ActivationStore, FetchesAheadSoThatOnlyTheFirstIsWaitedFor) {
  ActivationStore store({.horizon = 4});
  const Handles first = put_and_settle(store, 4, 0);
  const Handles second = put_and_settle(store, 4, 1, 4);

  expect_value(first[3]->take(), 3);
  // The three below it, and the last of the next microbatch.
  while (store.stats().coming > 0) std::this_thread::yield();
  EXPECT_EQ(store.stats().fast_bytes, 4 * kBytes);
  for (const int index : {2, 1, 0}) expect_value(first[index]->take(), index);
  while (store.stats().coming > 0) std::this_thread::yield();
  EXPECT_EQ(store.stats().fast_bytes, 4 * kBytes);
  for (const int index : {3, 2, 1, 0}) expect_value(second[index]->take(), 4 + index);

  EXPECT_EQ(store.stats().waits, 1);
}

TEST(ActivationStore, HoldsNoMoreThanTheHorizonInFastMemory) {
  ActivationStore store({.horizon = 2});
  const Handles handles = put_and_settle(store, 10);

  expect_value(handles[9]->take(), 9);
  while (store.stats().fast_bytes < 2 * kBytes) std::this_thread::yield();

  EXPECT_EQ(store.stats().fast_bytes, 2 * kBytes);
  EXPECT_EQ(store.stats().slow_bytes, 9 * kBytes) << "a block is free once its tensor is taken";
}

TEST(ActivationStore, UsesItsMemoryAgain) {
  ActivationStore store({.horizon = 1});
  for (int round = 0; round < 5; ++round) {
    const Handles handles = put_and_settle(store, 4);
    for (int i = 3; i >= 0; --i) handles[i]->take();
    while (store.stats().slow_bytes > 0) std::this_thread::yield();
  }

  EXPECT_EQ(store.stats().arena_bytes, 4 * kBytes);
}

TEST(ActivationStore, ForgetsWhatNobodyTook) {
  ActivationStore store({.horizon = 4});
  { const Handles handles = put_and_settle(store, 4); }
  { store.put(filled(0), 7); }

  while (store.stats().slow_bytes + store.stats().fast_bytes > 0) std::this_thread::yield();
  EXPECT_EQ(store.stats().taken, 0);
}

TEST(ActivationStore, KeepsStridesAndTypes) {
  ActivationStore store({.horizon = 1});
  const at::Tensor tensor =
      at::full({2, 64, 8, 8}, 3.0, at::kDouble).contiguous(at::MemoryFormat::ChannelsLast);
  const auto handle = store.put(tensor, 0);
  while (store.stats().fast_bytes > 0) std::this_thread::yield();

  const at::Tensor back = handle->take();

  EXPECT_EQ(back.strides(), tensor.strides());
  EXPECT_TRUE(back.equal(tensor));
  EXPECT_NE(back.data_ptr(), tensor.data_ptr());
}

TEST(ActivationStore, LeavesSmallAndOverlappingTensorsAlone) {
  ActivationStore store({.horizon = 1});

  EXPECT_EQ(store.put(at::full({4}, 1.0), 0), nullptr);
  EXPECT_EQ(store.put(at::full({1}, 1.0).expand({kElements}), 0), nullptr);
  EXPECT_EQ(store.put(filled(1).slice(0, 0, kElements, 2), 0), nullptr);
}

TEST(ActivationStore, RefusesWhatWasChangedInPlace) {
  ActivationStore store({.horizon = 1, .bytes_per_second = kBytes * 10});
  at::Tensor tensor = filled(1);
  const auto handle = store.put(tensor, 0);
  tensor.add_(1);

  EXPECT_THAT([&] { handle->take(); },
              ::testing::ThrowsMessage<UserCodeError>(::testing::HasSubstr("changed in place")));
}

// As a GPU's, whose copies are done when the call returns.

TEST(ActivationStoreByStreams, GivesBackWhatWasPutInAnyOrder) {
  for (const int64_t horizon : {1, 2, 100}) {
    ActivationStore store({.horizon = horizon, .by_streams = true});
    Handles handles;
    for (int i = 0; i < 8; ++i) handles.push_back(store.put(filled(i), 0));
    EXPECT_EQ(store.stats().slow_bytes, 8 * kBytes);
    EXPECT_EQ(store.stats().fast_bytes, 0) << "the original is let go at once";

    for (const int index : {3, 7, 0, 6, 5, 1, 2, 4}) expect_value(handles[index]->take(), index);

    EXPECT_EQ(store.stats().taken, 8);
    EXPECT_EQ(store.stats().slow_bytes, 0);
    EXPECT_EQ(store.stats().fast_bytes, 0);
  }
}

TEST(ActivationStoreByStreams, FetchesTheHorizonAheadAndNoMore) {
  ActivationStore store({.horizon = 3, .by_streams = true});
  Handles first;
  Handles second;
  for (int i = 0; i < 3; ++i) first.push_back(store.put(filled(i), 0));
  for (int i = 0; i < 3; ++i) second.push_back(store.put(filled(10 + i), 1));

  expect_value(first[2]->take(),
               2);  // then its two neighbours, and the last of the next microbatch
  EXPECT_EQ(store.stats().fast_bytes, 3 * kBytes);
  EXPECT_EQ(store.stats().slow_bytes, 5 * kBytes) << "a block is free once its tensor is taken";
  expect_value(second[2]->take(), 12);
  EXPECT_EQ(store.stats().fast_bytes, 4 * kBytes);

  EXPECT_EQ(store.stats().waits, 0);
}

TEST(ActivationStoreByStreams, UsesItsMemoryAgainAlsoOfWhatNobodyTook) {
  ActivationStore store({.horizon = 1, .by_streams = true});
  for (int round = 0; round < 5; ++round) {
    Handles handles;
    for (int i = 0; i < 4; ++i) handles.push_back(store.put(filled(i), 0));
    if (round % 2 == 0) expect_value(handles[3]->take(), 3);  // and one more is fetched
  }

  EXPECT_EQ(store.stats().arena_bytes, 4 * kBytes);
  EXPECT_EQ(store.stats().fast_bytes, 0);
  EXPECT_EQ(store.stats().slow_bytes, 0);
}

TEST(ActivationStoreByStreams, AsksForBlocksTogetherWhereOneWouldWasteMemory) {
  constexpr int64_t kMiB = 1 << 20;
  EXPECT_EQ(blocks_together(16 * kMiB), 1);
  EXPECT_EQ(blocks_together(15 * kMiB), 1) << "a fifteenth is little";
  EXPECT_EQ(blocks_together(10 * kMiB), 3) << "30 of 32; one alone takes 16";
  EXPECT_EQ(blocks_together(25 * kMiB), 5) << "125 of 128; one alone takes 32";

  ActivationStore store({.horizon = 1, .by_streams = true});
  std::vector<at::Tensor> tensors;
  Handles handles;
  for (int i = 0; i < 6; ++i) {
    tensors.push_back(at::full({10 * kMiB / 4}, i, at::kFloat));
    handles.push_back(store.put(tensors.back(), 0));
  }

  EXPECT_EQ(store.stats().arena_bytes, 64 * kMiB);
  for (int i = 5; i >= 0; --i) expect_value(handles[i]->take(), i);
}

TEST(ActivationStoreByStreams, RefusesWhatWasChangedInPlaceAtAnyTime) {
  ActivationStore store({.horizon = 1, .by_streams = true});
  at::Tensor tensor = filled(1);
  const auto changed = store.put(tensor, 0);
  const auto kept = store.put(tensor.clone(), 0);
  tensor.view({-1, 2}).add_(1);

  expect_value(kept->take(), 1);
  EXPECT_THAT([&] { changed->take(); },
              ::testing::ThrowsMessage<UserCodeError>(::testing::HasSubstr("changed in place")));
}

TEST(ActivationStoreByStreams, KeepsStridesAndTypes) {
  ActivationStore store({.horizon = 1, .by_streams = true});
  const at::Tensor tensor =
      at::full({2, 64, 8, 8}, 3.0, at::kDouble).contiguous(at::MemoryFormat::ChannelsLast);

  const at::Tensor back = store.put(tensor, 0)->take();

  EXPECT_EQ(back.strides(), tensor.strides());
  EXPECT_TRUE(back.equal(tensor));
  EXPECT_NE(back.data_ptr(), tensor.data_ptr());
}

TEST(ActivationStore, NeverHasMoreInFastMemoryThanItMay) {
  for (const bool by_streams : {false, true}) {
    for (const int64_t most : {1, 2, 3}) {
      ActivationStore store({.horizon = most - 1, .most_fast = most, .by_streams = by_streams});
      for (int round = 0; round < 3; ++round) {
        Handles handles;
        for (int i = 0; i < 8; ++i) handles.push_back(store.put(filled(i), round));
        for (int i = 7; i >= 0; --i) expect_value(handles[i]->take(), i);
      }

      EXPECT_LE(store.stats().highest_fast, most) << "by streams: " << by_streams;
      EXPECT_GT(store.stats().highest_fast, 0);
      EXPECT_EQ(store.stats().fast, 0);
      EXPECT_EQ(store.stats().slow_bytes, 0);
    }
  }
}

TEST(ActivationStore, WaitsForNoRoomThatWhatIsWantedHas) {
  for (const bool by_streams : {false, true}) {
    ActivationStore store({.horizon = 1, .most_fast = 2, .by_streams = by_streams});
    Handles handles;
    for (int i = 0; i < 4; ++i) handles.push_back(store.put(filled(i), 0));
    for (const int index : {3, 0}) expect_value(handles[index]->take(), index);  // 2 is wanted

    for (int i = 4; i < 8; ++i) handles.push_back(store.put(filled(i), 1));

    for (const int index : {7, 6, 5, 4, 2, 1}) expect_value(handles[index]->take(), index);
  }
}

TEST(ActivationStore, LeavesRoomWhereNobodyTook) {
  for (const bool by_streams : {false, true}) {
    ActivationStore store({.horizon = 1, .most_fast = 2, .by_streams = by_streams});
    for (int round = 0; round < 3; ++round) {
      Handles handles;
      for (int i = 0; i < 4; ++i) handles.push_back(store.put(filled(i), 0));
      expect_value(handles[3]->take(), 3);  // and one is fetched, which is forgotten
    }

    while (store.stats().slow_bytes + store.stats().fast_bytes > 0) std::this_thread::yield();
    EXPECT_EQ(store.stats().fast, 0);
  }
}

TEST(ActivationStore, OutlivesNoHandle) {
  std::shared_ptr<ActivationStore::Handle> handle;
  {
    ActivationStore store({.horizon = 1});
    handle = store.put(filled(1), 0);
  }
  handle.reset();
}

}  // namespace
}  // namespace smp::pipeline
