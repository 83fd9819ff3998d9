// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/crc32c.h"

#include <random>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace smp::checkpoint {
namespace {

std::uint32_t of(std::string_view text) { return crc32c(0, std::as_bytes(std::span(text))); }

TEST(Crc32c, GivesTheValuesOfRfc3720) {
  EXPECT_EQ(of("123456789"), 0xE3069283U);
  EXPECT_EQ(of(""), 0U);
  const std::vector<std::byte> zeros(32);
  EXPECT_EQ(crc32c(0, zeros), 0x8A9136AAU);
  const std::vector<std::byte> ones(32, std::byte{0xFF});
  EXPECT_EQ(crc32c(0, ones), 0x62A8AB43U);
}

TEST(Crc32c, IsTheSameByTableByInstructionAndInParts) {
  std::mt19937 random(7);
  for (std::size_t size = 0; size < 200; ++size) {
    std::vector<std::byte> data(size);
    for (std::byte& byte : data) byte = static_cast<std::byte>(random());
    const std::size_t cut = size == 0 ? 0 : random() % size;
    const std::span<const std::byte> all(data);

    const std::uint32_t whole = crc32c_by_table(0, all);

    EXPECT_EQ(crc32c(0, all), whole) << size;
    EXPECT_EQ(crc32c(crc32c(0, all.first(cut)), all.subspan(cut)), whole) << size;
  }
}

TEST(Crc32c, ChangesWithEveryBit) {
  std::vector<std::byte> data(64, std::byte{0x5A});
  const std::uint32_t before = crc32c(0, data);
  for (std::byte& byte : data) {
    for (int bit = 0; bit < 8; ++bit) {
      byte ^= static_cast<std::byte>(1 << bit);
      EXPECT_NE(crc32c(0, data), before);
      byte ^= static_cast<std::byte>(1 << bit);
    }
  }
}

}  // namespace
}  // namespace smp::checkpoint
