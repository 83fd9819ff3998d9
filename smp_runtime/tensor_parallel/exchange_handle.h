// SPDX-License-Identifier: Apache-2.0
// How a custom autograd function keeps its group between forward and backward.
#pragma once

#include <memory>
#include <utility>

#include <ATen/core/ivalue.h>
#include <c10/util/intrusive_ptr.h>

#include "smp_runtime/tensor_parallel/tensor_exchange.h"

namespace smp::tensor_parallel {

struct ExchangeHandle : torch::CustomClassHolder {
  explicit ExchangeHandle(std::shared_ptr<TensorExchange> held) : exchange(std::move(held)) {}
  std::shared_ptr<TensorExchange> exchange;
};

inline c10::IValue keep(std::shared_ptr<TensorExchange> exchange) {
  return c10::IValue::make_capsule(c10::make_intrusive<ExchangeHandle>(std::move(exchange)));
}

inline TensorExchange& kept(const c10::IValue& value) {
  return *static_cast<ExchangeHandle&>(*value.toCapsule()).exchange;
}

}  // namespace smp::tensor_parallel
