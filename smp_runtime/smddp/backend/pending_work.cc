// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/backend/pending_work.h"

#include <algorithm>
#include <utility>

#include <c10/core/StreamGuard.h>

#include "smp_runtime/core/deadline.h"

namespace smp::smddp {

using Future = c10::ivalue::Future;

namespace {

using std::chrono::milliseconds;

/// Often enough for somebody who has pressed Ctrl-C, and no cost to calls that go well.
constexpr milliseconds kSignalInterval{500};

Interpreter interpreter;

}  // namespace

void set_interpreter(const Interpreter& given) { interpreter = given; }

std::function<void()> signal_handling() {
  if (interpreter.handle_signals == nullptr) return {};
  return [next = Clock::now() + kSignalInterval]() mutable {
    if (Clock::now() < next) return;
    interpreter.handle_signals();
    next = Clock::now() + kSignalInterval;
  };
}

PendingWork::PendingWork(int rank, const Call& call, std::vector<at::Tensor> results,
                         std::optional<c10::Stream> writes_on)
    : c10d::Work(rank, call.type, call.title.c_str(), call.inputs),
      sequence_(call.sequence),
      between_all_(call.between_all),
      results_(std::move(results)),
      writes_on_(writes_on),
      future_(c10::make_intrusive<Future>(
          c10::ListType::create(c10::TensorType::get()),
          writes_on ? std::vector<c10::Device>{writes_on->device()} : std::vector<c10::Device>())) {
  // The first callback: whoever waits finds the future complete, and does not wait for the others.
  future_->addCallback([this](Future&) { finish(error_); });
}

void PendingWork::synchronize() {
  if (writes_on_) written_.block(cuda::current_stream(writes_on_->device()));
}

void PendingWork::end(const std::exception_ptr& error, CallbackThreads* threads) {
  if (writes_on_ && !error) written_ = cuda::StreamEvent(*writes_on_);
  error_ = error;
  {
    const std::lock_guard lock(asking_);
    if (!is_asked_for_ || threads == nullptr) return complete_future();
  }
  threads->run(
      [self = c10::intrusive_ptr<PendingWork>::reclaim_copy(this)] { self->complete_future(); });
}

void PendingWork::complete_future() {
  const c10::OptionalStreamGuard guard(writes_on_);  // the future notes its place, too
  if (error_) {
    future_->setErrorIfNeeded(error_);
  } else {
    future_->markCompleted(c10::IValue(results_));
  }
}

/// Without a timeout there is no deadline of its own: the call has one, at which it ends with an
/// error.
void PendingWork::await_end(milliseconds timeout) {
  const auto start = Clock::now();
  const auto look = signal_handling();
  while (true) {
    const auto left = timeout - (Clock::now() - start);
    const bool is_last = timeout != kNoTimeout && left <= kSignalInterval;
    std::unique_lock lock(mutex_);
    const bool ended = cv_.wait_for(lock, is_last ? left : Clock::duration(kSignalInterval),
                                    [this] { return completed_; });
    if (ended || is_last) return;
    lock.unlock();
    if (look) look();
  }
}

bool PendingWork::wait(milliseconds timeout) {
  await_end(timeout);
  // The work has ended, or its time is up.
  return c10d::Work::wait(timeout == kNoTimeout ? timeout : milliseconds(1));
}

c10::intrusive_ptr<Future> PendingWork::getFuture() {
  if (between_all_ && interpreter.holds_lock != nullptr && interpreter.holds_lock()) {
    interpreter.without_lock([this] { await_end(kNoTimeout); });
    return future_;
  }
  const std::lock_guard lock(asking_);
  is_asked_for_ = true;
  return future_;
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

}  // namespace smp::smddp
