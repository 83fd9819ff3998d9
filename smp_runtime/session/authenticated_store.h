// SPDX-License-Identifier: Apache-2.0
// A store of c10d whose values prove that a process of the job has written them, and that nobody
// else can read: whoever reaches the store's port gets, sets and deletes what is in it. c10d's own
// groups use it, too, so that the addresses of gloo, NCCL and libfabric are covered.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "smp_runtime/core/job_secret.h"

namespace smp::session {

/// Each value is sealed under its key. Reading one that is not throws HostError that names the key.
/// A stranger can still delete a value, or put back an
/// earlier one of the same key, so a key is written once, or by one process that nobody waits for.
///
/// What add() counts is not sealed, since the server does the sum: nothing may follow from a
/// counter but how long somebody waits. get() returns one as text where this process, or a clone of
/// this store, counts with the key (one of the last kCounters), and only if it is a number.
///
/// append(), multiSet() and barrier() are c10d's own, on top of these.
class AuthenticatedStore : public c10d::Store {
 public:
  using StorePtr = c10::intrusive_ptr<c10d::Store>;
  using Bytes = std::vector<std::uint8_t>;

  static constexpr std::size_t kCounters = 256;

  AuthenticatedStore(StorePtr store, const JobSecret& secret);

  [[nodiscard]] const JobSecret& secret() const { return secret_; }
  /// The same keys and counters over another connection to the same server.
  [[nodiscard]] c10::intrusive_ptr<AuthenticatedStore> over(StorePtr store) const;
  /// The store that holds the sealed values.
  [[nodiscard]] const StorePtr& inner() const { return store_; }

  StorePtr clone() override;
  using Store::set;
  void set(const std::string& key, const Bytes& value) override;
  using Store::compareSet;
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override;
  Bytes get(const std::string& key) override;
  std::vector<Bytes> multiGet(const std::vector<std::string>& keys) override;
  std::int64_t add(const std::string& key, std::int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;
  const std::chrono::milliseconds& getTimeout() const noexcept override;
  void setTimeout(const std::chrono::milliseconds& timeout) override;
  void queuePush(const std::string& key, const Bytes& value) override;
  Bytes queuePop(const std::string& key, bool block) override;
  std::int64_t queueLen(const std::string& key) override;
  std::vector<std::string> listKeys() override;

 private:
  /// Keys that this process counts with, the last ones.
  struct Counters {
    std::mutex mutex;
    std::deque<std::string> keys;

    void note(const std::string& key);
    bool has(const std::string& key);
  };

  [[nodiscard]] Bytes opened(const std::string& key, Bytes sealed) const;

  const StorePtr store_;
  const JobSecret secret_;
  const SealKey key_;
  std::shared_ptr<Counters> counters_ = std::make_shared<Counters>();
};

}  // namespace smp::session
