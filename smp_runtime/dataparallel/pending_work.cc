// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/dataparallel/pending_work.h"

#include <algorithm>
#include <utility>

namespace smp::dataparallel {

using Future = c10::ivalue::Future;

PendingWork::PendingWork(int rank, c10d::OpType type, uint64_t sequence,
                         std::vector<at::Tensor> results)
    : c10d::Work(rank, type),
      sequence_(sequence),
      results_(std::move(results)),
      future_(c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()))) {}

void PendingWork::end(const std::exception_ptr& error, CallbackThreads* threads) {
  finish(error);
  const auto tell = [future = future_, results = results_, error] {
    if (error) {
      future->setErrorIfNeeded(error);
    } else {
      future->markCompleted(c10::IValue(results));
    }
  };
  if (threads != nullptr) {
    threads->run(tell);
  } else {
    tell();
  }
}

JoinedWork::JoinedWork(std::vector<c10::intrusive_ptr<c10d::Work>> works)
    : works_(std::move(works)) {}

bool JoinedWork::isCompleted() {
  return std::ranges::all_of(works_, [](const auto& work) { return work->isCompleted(); });
}

bool JoinedWork::isSuccess() const {
  return std::ranges::all_of(works_, [](const auto& work) { return work->isSuccess(); });
}

std::exception_ptr JoinedWork::exception() const {
  for (const auto& work : works_) {
    if (const std::exception_ptr error = work->exception()) return error;
  }
  return nullptr;
}

bool JoinedWork::wait(std::chrono::milliseconds timeout) {
  for (const auto& work : works_) work->wait(timeout);
  return true;
}

c10::intrusive_ptr<Future> JoinedWork::getFuture() {
  c10::List<c10::intrusive_ptr<Future>> futures(
      c10::FutureType::create(c10::ListType::create(c10::TensorType::get())));
  for (const auto& work : works_) futures.push_back(work->getFuture());
  return c10::collectAll(futures);
}

}  // namespace smp::dataparallel
