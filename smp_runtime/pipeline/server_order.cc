// SPDX-License-Identifier: Apache-2.0
// The order of a step's work: the driver says it, each rank follows it, or leaves it.
#include "smp_runtime/core/error.h"
#include "smp_runtime/pipeline/server.h"

namespace smp::pipeline {

void Server::begin_step(const std::string& kind, int64_t microbatches) {
  timeline_.begin_step(++step_);
  values_.forget_values();
  started_ = finished_ = 0;
  ended_ = -1;
  step_order_.begin_step(kind, microbatches);
  for (int peer = 1; peer < transport_.size(); ++peer) {
    send(peer, {.kind = Kind::kStepBegin, .body = step_order_.of_rank(peer).encode()});
  }
  follow(step_order_.of_rank(0));
}

void Server::follow(const RankOrder& order) {
  begun_ = true;
  order_ = order.mode;
  patience_ = order.patience;
  scheduler_.begin_step();
  waits_since_.reset();
  times_.clear();
  if (order_ == OrderMode::kPlanned || order_ == OrderMode::kPreferred) {
    scheduler_.follow(order.work, order_ == OrderMode::kPreferred);
  } else {
    scheduler_.drop_order();  // of an earlier step
  }
}

void Server::drop_order() {
  if (options_.shared_order) {
    throw UserCodeError(
        "step {} of {} does not call the modules that the recorded step of its kind called, so the "
        "ranks of a tensor-parallel group cannot keep one order of work; give each way through the "
        "model a step of its own, or set active_microbatches to 1 and pipeline "
        "to interleaved",
        step_, options_.name);
  }
  scheduler_.drop_order();
  if (driver()) {
    step_order_.diverged();
  } else {
    tell_driver({.kind = Kind::kRecordedOrder});  // it plans anew
  }
}

}  // namespace smp::pipeline
