// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/byte_ring.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace smp::transport {
namespace {

TEST(ByteRing, BytesArriveInOrderAroundTheEndFromAnotherThread) {
  constexpr size_t kTotal = 200'000;
  RingCounts counts{};
  std::vector<std::byte> memory(256);
  ByteRing ring(&counts, memory.data(), memory.size());

  std::thread writer([&] {
    size_t sent = 0;
    while (sent < kTotal) {
      std::vector<std::byte> bytes(std::min<size_t>(1 + sent % 97, kTotal - sent));
      for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>((sent + i) % 251);
      size_t done = 0;
      while (done < bytes.size()) {
        const size_t count = ring.write(std::span(bytes).subspan(done));
        if (count == 0) std::this_thread::yield();
        done += count;
      }
      sent += bytes.size();
    }
  });
  size_t received = 0;
  size_t wrong = 0;
  std::vector<std::byte> bytes(61);
  while (received < kTotal) {
    const size_t count = ring.read(bytes);
    if (count == 0) std::this_thread::yield();
    for (size_t i = 0; i < count; ++i) {
      wrong += bytes[i] != static_cast<std::byte>((received + i) % 251);
    }
    received += count;
  }
  writer.join();

  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(ring.read(bytes), 0U);
}

TEST(ByteRing, AFullRingTakesNothingMore) {
  RingCounts counts{};
  std::vector<std::byte> memory(64);
  ByteRing ring(&counts, memory.data(), memory.size());
  std::vector<std::byte> bytes(100);

  EXPECT_EQ(ring.write(bytes), 64U);
  EXPECT_EQ(ring.write(bytes), 0U);
  EXPECT_EQ(ring.read(std::span(bytes).first(10)), 10U);
  EXPECT_EQ(ring.write(bytes), 10U);
}

}  // namespace
}  // namespace smp::transport
