// SPDX-License-Identifier: Apache-2.0
// Shared by the fuzz targets and what replays their seeds.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count);

namespace fuzz {

/// Ends the program, which is a finding.
inline void require(bool holds) {
  if (!holds) std::abort();
}

inline std::string text_of(const std::uint8_t* bytes, std::size_t count) {
  return {bytes, bytes + count};
}

/// Seeds by name: what the program's own writers write, and attacks made of it. A target whose
/// format is no text has this function; the replay compares its corpus with them, and writes it
/// under SMP_UPDATE_GOLDEN.
std::map<std::string, std::string> made_inputs() __attribute__((weak));

}  // namespace fuzz
