// SPDX-License-Identifier: Apache-2.0
// Ranks wait for each other over the job's store, with a deadline, and name who did not come.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "smp_runtime/core/deadline.h"
#include "smp_runtime/session/c10d_store.h"
#include "smp_runtime/session/deadlock/deadlock_detector.h"

namespace smp::session {

/// One rank's view. Calls are numbered: the n-th call of one rank meets the n-th of another. No
/// call waits longer than `timeout`; ranks that wait for each other in different calls throw
/// CallMismatch, within 10 s. Safe to call from several threads.
class StoreBarriers {
 public:
  /// Of `rank` of a job of `size`: the more ranks there are, the more seldom each asks the store.
  /// `watch` sees mismatches; without one nobody looks.
  StoreBarriers(StorePtr store, int rank, int size, std::chrono::milliseconds timeout,
                std::shared_ptr<DeadlockDetector> watch);

  [[nodiscard]] const std::shared_ptr<DeadlockDetector>& watch() const { return watch_; }
  [[nodiscard]] std::chrono::milliseconds timeout() const { return timeout_; }
  /// For calls that begin from now on.
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] const StorePtr& store() const { return store_; }

  /// Returns when all `ranks` of the job, this one among them, have called it under this `label`.
  /// Throws WaitTimeout that begins with `what`, names the absent ranks and ends with `advice`.
  void all(const std::string& what, const std::string& label, const std::vector<int>& ranks,
           std::string_view advice = {});

  /// First half of a sender's call: leaves `note` for `receiver`. Never waits. Returns the call.
  std::string announce(const std::string& label, int receiver, const std::string& note);
  /// Second half: returns when the receiver has come for it.
  void await_receiver(const std::string& what, const std::string& call, int receiver);
  /// A receiver's call: returns the note of the matching call of `sender`.
  std::string await_sender(const std::string& what, const std::string& label, int sender);

 private:
  [[nodiscard]] std::string next(const std::string& label);
  std::string await(const std::string& what, const std::string& key, int peer);
  /// Returns true if the keys are there within `limit`. Throws CallMismatch as all() does.
  bool appear(const std::vector<std::string>& keys, std::chrono::milliseconds limit);
  [[nodiscard]] WaitTimeout in_vain(const std::string& what, const std::vector<int>& absent,
                                    std::vector<int> ranks, std::string_view advice = {}) const;

  const StorePtr store_;
  const int rank_;
  const int size_;
  std::atomic<std::chrono::milliseconds> timeout_;
  const std::shared_ptr<DeadlockDetector> watch_;
  std::mutex mutex_;
  std::map<std::string, int> calls_;  ///< so far, by label
};

}  // namespace smp::session
