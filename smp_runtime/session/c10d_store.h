// SPDX-License-Identifier: Apache-2.0
// The store of a c10d group as the runtime's KeyValueStore.
#pragma once

#include <string>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "smp_runtime/transport/key_value_store.h"

namespace smp::session {

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
