// SPDX-License-Identifier: Apache-2.0
// The store of ranks that are threads.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/job_secret.h"
#include "smp_runtime/transport/key_value_store.h"

namespace smp::transport {

class StoreOfThreads : public KeyValueStore {
 public:
  StoreOfThreads() = default;
  explicit StoreOfThreads(JobSecret secret) : secret_(std::move(secret)) {}

  [[nodiscard]] const JobSecret* secret() const override { return secret_ ? &*secret_ : nullptr; }
  bool has(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    return values_.contains(key);
  }
  std::optional<std::string> find(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(key);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }
  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::string get(const std::string& key, const WaitLimit& limit) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, limit.deadline, [&] { return values_.contains(key); })) {
      throw HostError("no {}", key);
    }
    return values_.at(key);
  }

 private:
  const std::optional<JobSecret> secret_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace smp::transport
