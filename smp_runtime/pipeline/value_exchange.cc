// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/value_exchange.h"

#include <algorithm>

#include "smp_runtime/core/error.h"

namespace smp::pipeline {

bool ValueExchange::admit(Envelope& request) {
  if (values_.has(request.inputs)) return true;
  waiting_.push_back(std::move(request));
  return false;
}

std::vector<Envelope> ValueExchange::receive(Envelope value) {
  if (fetch_ && fetch_->id == value.call) {
    fetch_->value = std::move(value.payload);
    return {};
  }
  values_.receive(value.microbatch, value.call, std::move(value.payload));
  std::vector<Envelope> ready;
  for (Envelope& request : std::exchange(waiting_, {})) {
    if (admit(request)) ready.push_back(std::move(request));
  }
  return ready;
}

ValueExchange::Named ValueExchange::take(const std::vector<ValueId>& ids) {
  Named values;
  for (const ValueId id : ids) values.emplace_back(id, values_.take(id));
  return values;
}

void ValueExchange::give(const Envelope& request, Named values) {
  for (auto& [id, payload] : values) {
    const auto wish = std::ranges::find(request.outputs_kept, id, &KeptOutput::id);
    SMP_CHECK(wish != request.outputs_kept.end(), "value {:#x} is not asked for", id);
    const bool keep = request.kind == Kind::kForward;
    const bool elsewhere = wish->destination >= 0 && wish->destination != rank_;
    if (elsewhere) {
      send_(wish->destination, {.kind = Kind::kValue,
                                .microbatch = request.microbatch,
                                .call = id,
                                .payload = keep ? payload->copy() : payload});
    }
    if (keep) {
      values_.keep(request.microbatch, id, std::move(payload));
    } else if (!elsewhere) {
      values_.receive(request.microbatch, id, std::move(payload));
    }
  }
}

void ValueExchange::answer(const Envelope& request) {
  const ValueId id = request.inputs.front();
  send_(request.caller, {.kind = Kind::kValue,
                         .microbatch = request.microbatch,
                         .call = id,
                         .payload = values_.find(id)->copy()});
}

void ValueExchange::ask(int holder, ValueId id, int destination, int64_t microbatch) {
  send_(holder,
        {.kind = Kind::kSend, .microbatch = microbatch, .caller = destination, .inputs = {id}});
}

void ValueExchange::begin_fetch(int holder, ValueId id, int64_t microbatch) {
  ask(holder, id, rank_, microbatch);
  fetch_ = {.holder = holder, .id = id};
}

ValueExchange::Payload ValueExchange::fetched() {
  if (!fetch_ || fetch_->value == nullptr) return nullptr;
  return std::exchange(fetch_, std::nullopt)->value;
}

std::optional<int> ValueExchange::fetches_from() const {
  return fetch_ ? std::optional(fetch_->holder) : std::nullopt;
}

std::vector<ValueId> ValueExchange::take_released(int holder) {
  const auto found = released_.find(holder);
  return found == released_.end() ? std::vector<ValueId>{}
                                  : std::move(released_.extract(found).mapped());
}

void ValueExchange::forget(const std::vector<ValueId>& ids) {
  for (const ValueId id : ids) values_.drop(id);
}

void ValueExchange::clear() {
  values_.clear();
  waiting_.clear();
  released_.clear();
  fetch_.reset();
}

}  // namespace smp::pipeline
