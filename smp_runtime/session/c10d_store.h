// SPDX-License-Identifier: Apache-2.0
// The store of a c10d group as the runtime's KeyValueStore.
#pragma once

#include <string>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "smp_runtime/transport/key_value_store.h"

namespace smp::session {

/// The same keys over a connection of its own: a TCPStore that waits for one thread keeps the
/// others waiting. Throws HostError where the store's server has ended: at once, or after 10 to 20
/// s where it ends just now. c10d's clone() would try again until the store's timeout.
[[nodiscard]] c10::intrusive_ptr<c10d::Store> own_connection(
    const c10::intrusive_ptr<c10d::Store>& store);

class C10dStore : public transport::KeyValueStore {
 public:
  explicit C10dStore(c10::intrusive_ptr<c10d::Store> store);

  bool has(const std::string& key) override;
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, const transport::WaitLimit& limit) override;

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace smp::session
