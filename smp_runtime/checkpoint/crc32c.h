// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli), the checksum of checkpoint files: what iSCSI, ext4 and object stores use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace smp::checkpoint {

/// Extends `crc`, the checksum of what came before (0 for nothing), by `data`. With SSE 4.2 about
/// 8 bytes in 3 cycles, else a table of 1 KiB.
[[nodiscard]] std::uint32_t crc32c(std::uint32_t crc, std::span<const std::byte> data);

/// The same without special instructions, for processors that lack them.
[[nodiscard]] std::uint32_t crc32c_by_table(std::uint32_t crc, std::span<const std::byte> data);

}  // namespace smp::checkpoint
