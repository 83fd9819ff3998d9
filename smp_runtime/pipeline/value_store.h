// SPDX-License-Identifier: Apache-2.0
// Results of calls that stay on the rank which made them, or wait on the one that will use them,
// instead of travelling over the caller.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "smp_runtime/pipeline/envelope.h"
#include "smp_runtime/transport/transport.h"

namespace smp::pipeline {

/// Values of a step that a rank holds. Belongs to the holder of the run token.
class ValueStore {
 public:
  using Payload = std::shared_ptr<transport::Payload>;

  /// A value that this rank made: stays until it is dropped, however often it is used.
  void keep(int64_t microbatch, ValueId id, Payload value);
  /// One that another rank sent here for one use.
  void receive(int64_t microbatch, ValueId id, Payload value);

  [[nodiscard]] bool has(std::span<const ValueId> ids) const;
  /// For a use on this rank: one that was made here is copied, for the user may change it.
  [[nodiscard]] Payload take(ValueId id);
  /// For a use elsewhere; null if it is not here.
  [[nodiscard]] Payload find(ValueId id) const;

  void drop(ValueId id) { values_.erase(id); }
  void drop_microbatch(int64_t microbatch);
  void clear() { values_.clear(); }
  [[nodiscard]] size_t size() const { return values_.size(); }

 private:
  struct Value {
    int64_t microbatch;
    Payload payload;
    bool made_here;
  };
  std::map<ValueId, Value> values_;
};

}  // namespace smp::pipeline
