// SPDX-License-Identifier: Apache-2.0
// The store of a c10d group as the runtime's KeyValueStore.
#pragma once

#include <memory>
#include <string>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "smp_runtime/transport/key_value_store.h"

namespace smp::session {

class C10dStore : public transport::KeyValueStore {
 public:
  explicit C10dStore(c10::intrusive_ptr<c10d::Store> store);
  /// The same keys over a connection of its own: a TCPStore that waits for one thread keeps the
  /// others waiting. Throws HostError at once where the store's server has ended; c10d's clone()
  /// would try again until long after the store's timeout.
  [[nodiscard]] static std::unique_ptr<C10dStore> over_own_connection(c10d::Store& store);

  bool has(const std::string& key) override;
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, const transport::WaitLimit& limit) override;

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace smp::session
