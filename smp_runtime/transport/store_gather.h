// SPDX-License-Identifier: Apache-2.0
// Gathers data of ranks by a store, before they are connected.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/plain_bytes.h"
#include "smp_runtime/transport/key_value_store.h"

namespace smp::transport {

/// One rank's end. All ranks gather the same labels, each once.
struct StoreGather {
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
    std::string bytes;
    append_plain_values(bytes, mine);
    std::string all;
    for (const std::string& theirs : gather(label, bytes)) {
      SMP_CHECK(theirs.size() == bytes.size(), "{} has {} bytes, not {}", label, theirs.size(),
                bytes.size());
      all += theirs;
    }
    std::string_view values = all;
    return take_plain_values<T>(values, mine.size() * static_cast<size_t>(size));
  }
};

}  // namespace smp::transport
