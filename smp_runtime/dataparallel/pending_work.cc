// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/dataparallel/pending_work.h"

#include <algorithm>
#include <utility>

#include <c10/core/StreamGuard.h>

namespace smp::dataparallel {

using Future = c10::ivalue::Future;

PendingWork::PendingWork(int rank, c10d::OpType type, uint64_t sequence,
                         std::vector<at::Tensor> results, std::optional<c10::Stream> writes_on)
    : c10d::Work(rank, type),
      sequence_(sequence),
      results_(std::move(results)),
      writes_on_(writes_on),
      future_(c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()),
                                          writes_on ? std::vector<c10::Device>{writes_on->device()}
                                                    : std::vector<c10::Device>())) {}

void PendingWork::synchronize() {
  if (writes_on_) written_.hold_back(cuda::current_stream(writes_on_->device()));
}

void PendingWork::end(const std::exception_ptr& error, CallbackThreads* threads) {
  if (writes_on_ && !error) written_ = cuda::StreamMark(*writes_on_);
  finish(error);
  const auto tell = [future = future_, results = results_, stream = writes_on_, error] {
    const c10::OptionalStreamGuard guard(stream);  // the future notes its place, too
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
