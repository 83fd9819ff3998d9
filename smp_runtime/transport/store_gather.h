// SPDX-License-Identifier: Apache-2.0
// Gathers data of ranks by a store, before they are connected: rank 0 reads that of all and hands
// it out, so that the others make two requests however many they are.
#pragma once

#include <algorithm>
#include <cstddef>
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
    if (rank != 0) {
      store.set(fmt::format("{}/{}", label, rank), mine);
      return gathered(label);
    }
    std::vector<std::string> all{mine};
    for (int peer = 1; peer < size; ++peer) {
      all.push_back(store.get(fmt::format("{}/{}", label, peer), limit));
    }
    std::string bytes;
    for (const std::string& one : all) append_plain(bytes, one.size());
    for (const std::string& one : all) bytes += one;
    store.set(label + "/all", bytes);
    return all;
  }

  /// What the ranks gather, for one that has nothing to give.
  [[nodiscard]] std::vector<std::string> gathered(const std::string& label) const {
    const std::string bytes = store.get(label + "/all", limit);
    std::string_view rest = bytes;
    const auto sizes = take_plain_values<size_t>(rest, static_cast<size_t>(size));
    std::vector<std::string> all;
    for (const size_t length : sizes) {
      all.emplace_back(rest.substr(0, length));
      rest.remove_prefix(std::min(length, rest.size()));
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
