// SPDX-License-Identifier: Apache-2.0
// Store by which the ranks of a group tell each other what they need before they are connected.
#pragma once

#include <optional>
#include <string>

#include "smp_runtime/core/job_secret.h"
#include "smp_runtime/transport/wait_limit.h"

namespace smp::transport {

/// Shared by all ranks of one group and by nobody else. Safe to call from several threads.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  [[nodiscard]] virtual bool has(const std::string& key) = 0;
  /// The key's value, none while there is none: waits for nobody. One request, where has() and
  /// get() are several.
  [[nodiscard]] virtual std::optional<std::string> find(const std::string& key) = 0;
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Waits for the key. Throws HostError when the limit passes first.
  virtual std::string get(const std::string& key, const WaitLimit& limit) = 0;
  /// The job's, which proves that its ranks have written the values; null where nothing does.
  [[nodiscard]] virtual const JobSecret* secret() const { return nullptr; }
};

}  // namespace smp::transport
