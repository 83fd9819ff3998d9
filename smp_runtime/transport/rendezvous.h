// SPDX-License-Identifier: Apache-2.0
// The ranks of a group before they are connected: they tell each other of themselves by a store.
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "smp_runtime/core/error.h"
#include "smp_runtime/transport/key_value_store.h"

namespace smp::transport {

/// One rank's end. All ranks gather the same labels, each once.
struct Rendezvous {
  KeyValueStore& store;
  int rank;
  int size;
  WaitLimit limit;

  /// Everybody's `mine`, by rank. Throws HostError when the limit passes.
  [[nodiscard]] std::vector<std::string> gather(const std::string& label,
                                                const std::string& mine) const {
    store.set(fmt::format("{}/{}", label, rank), mine);
    std::vector<std::string> all;
    for (int peer = 0; peer < size; ++peer) {
      all.push_back(store.get(fmt::format("{}/{}", label, peer), limit));
    }
    return all;
  }

  /// The same for plain values, of which each rank has as many; those of all ranks by rank.
  template <typename T>
  [[nodiscard]] std::vector<T> gather_values(const std::string& label,
                                             std::span<const T> mine) const {
    static_assert(std::is_trivially_copyable_v<T>);
    std::string bytes(mine.size_bytes(), '\0');
    std::memcpy(bytes.data(), mine.data(), mine.size_bytes());
    std::vector<T> all(mine.size() * static_cast<size_t>(size));
    T* place = all.data();
    for (const std::string& theirs : gather(label, bytes)) {
      SMP_CHECK(theirs.size() == bytes.size(), "{} has {} bytes, not {}", label, theirs.size(),
                bytes.size());
      std::memcpy(place, theirs.data(), theirs.size());
      place += mine.size();
    }
    return all;
  }
};

}  // namespace smp::transport
