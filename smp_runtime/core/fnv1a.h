// SPDX-License-Identifier: Apache-2.0
// A digest that tells accidents apart, the same on every machine; no secret may depend on it.
#pragma once

#include <cstdint>
#include <string_view>

namespace smp {

/// FNV-1a of 64 bits (Fowler, Noll, Vo). A text in parts: the digest of the earlier ones is
/// `begin`.
constexpr std::uint64_t fnv1a(std::string_view bytes, std::uint64_t begin = 0xcbf29ce484222325U) {
  std::uint64_t digest = begin;
  for (const char byte : bytes)
    digest = (digest ^ static_cast<unsigned char>(byte)) * 0x100000001b3U;
  return digest;
}

}  // namespace smp
