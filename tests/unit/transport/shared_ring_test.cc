// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/shared_ring.h"

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "smp_runtime/transport/shared_memory.h"
#include "tests/unit/transport/numbered_bytes.h"

namespace smp::transport {
namespace {

constexpr std::chrono::milliseconds kSlice{50};

void write_all(SharedRing& ring, std::span<const std::byte> bytes) {
  while (true) {
    bytes = bytes.subspan(ring.write_some(bytes));
    if (bytes.empty()) return;
    ring.wait_for_room(kSlice);
  }
}

void read_all(SharedRing& ring, std::span<std::byte> bytes) {
  while (true) {
    bytes = bytes.subspan(ring.read_some(bytes));
    if (bytes.empty()) return;
    ring.wait_for_bytes(kSlice);
  }
}

TEST(SharedRing, TakesAsMuchAsFits) {
  SharedMemory memory = SharedMemory::create(SharedRing::size_bytes());
  SharedRing ring(memory.data());
  const std::vector<std::byte> much = numbered(SharedRing::kCapacity + 100, 0);

  EXPECT_EQ(ring.write_some(much), SharedRing::kCapacity);
  EXPECT_EQ(ring.room(), 0U);
  std::vector<std::byte> read(much.size());
  EXPECT_EQ(ring.read_some(read), SharedRing::kCapacity);
  EXPECT_EQ(ring.read_some(read), 0U);
}

// Pieces of every size, far beyond the capacity, and the counts wrap: the stream is what was
// written.
TEST(SharedRing, AStreamArrivesWholeBetweenTwoThreads) {
  SharedMemory memory = SharedMemory::create(SharedRing::size_bytes());
  std::vector<size_t> sizes;
  std::mt19937 random(7);
  for (int turn = 0; turn < 400; ++turn) {
    sizes.push_back(size_t{1} << (random() % 20));
    sizes.back() += random() % 7;
  }

  std::thread writer([&] {
    SharedRing ring(memory.data());
    uint32_t start = 0;
    for (const size_t size : sizes) write_all(ring, numbered(size, start++));
  });
  SharedRing ring(memory.data());
  uint32_t start = 0;
  size_t damaged = 0;
  for (const size_t size : sizes) {
    std::vector<std::byte> read(size);
    read_all(ring, read);
    damaged += read == numbered(size, start++) ? 0 : 1;
  }
  writer.join();

  EXPECT_EQ(damaged, 0U);
  EXPECT_EQ(ring.available(), 0U);
}

TEST(SharedRing, AWakeEndsAWaitEarly) {
  SharedMemory memory = SharedMemory::create(SharedRing::size_bytes());
  SharedRing ring(memory.data());
  std::atomic<bool> ended{false};
  std::thread reader([&] {
    SharedRing(memory.data()).wait_for_bytes(std::chrono::minutes(5));
    ended.store(true);
  });

  // A wake that comes before the reader sleeps is lost.
  for (int wakes = 0; wakes < 60'000 && !ended.load(); ++wakes) {
    ring.wake();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  EXPECT_TRUE(ended.load());
  reader.join();
}

}  // namespace
}  // namespace smp::transport
