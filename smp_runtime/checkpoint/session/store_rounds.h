// SPDX-License-Identifier: Apache-2.0
// Texts between all ranks of a job over its store, for a thread beside the one that trains: groups
// belong to that one.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "smp_runtime/session/session.h"

namespace smp::checkpoint {

/// One rank's part. Used by one thread; stop() by any.
class StoreRounds {
 public:
  /// Over the session's second connection. `name` is of these rounds alone, and the same on all
  /// ranks.
  StoreRounds(session::Session& session, const std::string& name);

  /// The texts of all ranks, by rank. Collective; rounds are called in the same order everywhere.
  /// Waits as long as any wait of the session lasts: throws WaitTimeout that begins with `what` and
  /// names the absent ranks, and HostError once it was stopped, or where the store is lost.
  std::vector<std::string> all_gather(const std::string& what, const std::string& text);
  /// A wait ends, and so does every later one.
  void stop() { stopped_ = true; }

 private:
  void await(const std::string& what, const std::vector<std::string>& keys);

  const int rank_;
  const int size_;
  const std::chrono::milliseconds timeout_;
  const session::StorePtr store_;
  const std::string name_;
  std::uint64_t round_ = 0;
  std::atomic<bool> stopped_ = false;
};

}  // namespace smp::checkpoint
