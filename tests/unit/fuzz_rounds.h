// SPDX-License-Identifier: Apache-2.0
/// How many random cases a test tries.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

namespace smp {

/// SMP_FUZZ_ROUNDS, or `usual`; under AddressSanitizer a tenth of that, since a case takes forty
/// times as long and a fault of memory shows in the first ones.
inline uint32_t fuzz_rounds(uint32_t usual) {
  const char* given = std::getenv("SMP_FUZZ_ROUNDS");
  if (given != nullptr) return static_cast<uint32_t>(std::stoul(given));
#ifdef __SANITIZE_ADDRESS__
  return (usual + 9) / 10;
#else
  return usual;
#endif
}

}  // namespace smp
