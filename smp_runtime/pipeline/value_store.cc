// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/value_store.h"

#include <algorithm>
#include <utility>

#include "smp_runtime/core/error.h"

namespace smp::pipeline {

void ValueStore::keep(int64_t microbatch, ValueId id, Payload value) {
  values_.insert_or_assign(
      id, Value{.microbatch = microbatch, .payload = std::move(value), .made_here = true});
}

void ValueStore::receive(int64_t microbatch, ValueId id, Payload value) {
  values_.insert_or_assign(
      id, Value{.microbatch = microbatch, .payload = std::move(value), .made_here = false});
}

bool ValueStore::has(std::span<const ValueId> ids) const {
  return std::ranges::all_of(ids, [this](ValueId id) { return values_.contains(id); });
}

ValueStore::Payload ValueStore::take(ValueId id) {
  const auto found = values_.find(id);
  SMP_CHECK(found != values_.end(), "value {:#x} is not here", id);
  if (found->second.made_here) return found->second.payload->copy();
  return std::move(values_.extract(found).mapped().payload);
}

ValueStore::Payload ValueStore::find(ValueId id) const {
  const auto found = values_.find(id);
  return found == values_.end() ? nullptr : found->second.payload;
}

void ValueStore::drop_microbatch(int64_t microbatch) {
  std::erase_if(values_, [&](const auto& entry) { return entry.second.microbatch == microbatch; });
}

}  // namespace smp::pipeline
