// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/crc32c.h"

#include <array>
#include <cstring>

namespace smp::checkpoint {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // reflected

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
    table[byte] = value;
  }
  return table;
}

constexpr auto kTable = make_table();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t by_instruction(std::uint32_t crc,
                                                               std::span<const std::byte> data) {
  std::uint64_t value = ~crc;
  while (data.size() >= sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, data.data(), sizeof(word));
    value = __builtin_ia32_crc32di(value, word);
    data = data.subspan(sizeof(word));
  }
  auto rest = static_cast<std::uint32_t>(value);
  for (const std::byte byte : data) {
    rest = __builtin_ia32_crc32qi(rest, static_cast<unsigned char>(byte));
  }
  return ~rest;
}
#endif

}  // namespace

std::uint32_t crc32c_by_table(std::uint32_t crc, std::span<const std::byte> data) {
  std::uint32_t value = ~crc;
  for (const std::byte byte : data) {
    value = kTable[(value ^ static_cast<std::uint32_t>(byte)) & 0xFF] ^ (value >> 8);
  }
  return ~value;
}

std::uint32_t crc32c(std::uint32_t crc, std::span<const std::byte> data) {
#if defined(__x86_64__)
  static const bool kInstruction = __builtin_cpu_supports("sse4.2") != 0;
  if (kInstruction) return by_instruction(crc, data);
#endif
  return crc32c_by_table(crc, data);
}

}  // namespace smp::checkpoint
