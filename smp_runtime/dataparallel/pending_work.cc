// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/dataparallel/pending_work.h"

#include <utility>

namespace smp::dataparallel {

PendingWork::PendingWork(int rank, c10d::OpType type, uint64_t sequence,
                         std::vector<at::Tensor> results)
    : c10d::Work(rank, type),
      sequence_(sequence),
      results_(std::move(results)),
      future_(
          c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {
}

void PendingWork::end(std::exception_ptr error) {
  if (error) {
    future_->setErrorIfNeeded(error);
  } else {
    future_->markCompleted(c10::IValue(results_));
  }
  finish(error);
}

}  // namespace smp::dataparallel
