// SPDX-License-Identifier: Apache-2.0
// Numbers that nobody draws twice.
#pragma once

#include <random>
#include <string>

#include <fmt/format.h>

namespace smp {

/// 128 random bits, in hexadecimal.
inline std::string fresh_nonce() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace smp
