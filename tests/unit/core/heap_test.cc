// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/heap.h"

#include <memory>
#include <thread>

#include <gtest/gtest.h>

namespace smp {
namespace {

class Heap : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the sanitizer's allocator stands in for glibc's";
#endif
  }
};

TEST_F(Heap, CountsWhatIsAllocatedAndNotFreed) {
  // The larger size is mapped by itself, the smaller one is cut from an arena.
  for (const int64_t size : {int64_t{100'000}, int64_t{100'000'000}}) {
    const int64_t before = heap_bytes();
    auto block = std::make_unique<char[]>(static_cast<size_t>(size));
    const int64_t with_block = heap_bytes();
    block.reset();

    EXPECT_GE(with_block - before, size);
    EXPECT_LT(with_block - before, size + 10'000);
    EXPECT_LT(heap_bytes() - before, 10'000);
  }
}

TEST_F(Heap, CountsOtherThreads) {
  const int64_t before = heap_bytes();
  std::unique_ptr<char[]> block;
  std::thread([&] { block = std::make_unique<char[]>(100'000); }).join();

  EXPECT_GE(heap_bytes() - before, 100'000);
}

}  // namespace
}  // namespace smp
