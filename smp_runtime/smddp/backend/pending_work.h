// SPDX-License-Identifier: Apache-2.0
// A collective that a rank has called: what torch.distributed hands out for it.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "smp_runtime/core/error.h"
#include "smp_runtime/cuda/stream_event.h"
#include "smp_runtime/smddp/backend/callback_threads.h"

namespace smp::smddp {

/// Python, of which the backend knows nothing.
struct Interpreter {
  bool (*holds_lock)() = nullptr;  ///< does this thread?
  void (*without_lock)(const std::function<void()>& action) = nullptr;
  /// Runs the handlers of signals that have come; throws what one raised. Without effect but in
  /// the process's first thread. Takes the lock, which a thread that waits must not hold.
  void (*handle_signals)() = nullptr;
};
/// Before the first group is made. Without it all callers are taken for C++.
void set_interpreter(const Interpreter& interpreter);

/// For WaitLimit: has signals handled once a wait is long enough for somebody to mind.
std::function<void()> signal_handling();

/// Waited for by any thread, ended once by the thread that ran the collective. When `wait` returns
/// the future is complete.
class PendingWork : public c10d::Work {
 public:
  /// Description of the call; profilers show `title` and the shapes of `inputs`.
  struct Call {
    c10d::OpType type;
    uint64_t sequence;
    std::string title;
    std::vector<at::Tensor> inputs;
    bool between_all;  ///< a collective, which each rank calls in the same order
  };

  /// `writes_on` is the stream that writes the results, where they are on a GPU.
  PendingWork(int rank, const Call& call, std::vector<at::Tensor> results,
              std::optional<c10::Stream> writes_on);

  [[nodiscard]] const std::optional<c10::Stream>& writes_on() const { return writes_on_; }

  /// Ends it; `error` is null for success. If somebody has asked for the future, it ends with its
  /// callbacks in one of `threads`; else, or without threads, at once.
  void end(const std::exception_ptr& error, CallbackThreads* threads);

  /// Signals are handled meanwhile.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;

  /// Makes later work of the thread's stream wait for the results; the thread itself does not wait.
  void synchronize() override;
  void blockCurrentStream() override { synchronize(); }

  std::vector<at::Tensor> result() override { return results_; }
  /// Future of the work. For a collective, and a caller in Python, it is returned when the work has
  /// ended: what `then` attaches runs at once, where it is attached. So collectives that are called
  /// in there come in one order on all ranks, as with NCCL; from another thread they could pair
  /// with other calls.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return sequence_; }
  /// The group rank of what was received from any; -1 otherwise.
  int sourceRank() const override { return source_.load(); }
  void set_source(int rank) { source_.store(rank); }

 private:
  void complete_future();
  void await_end(std::chrono::milliseconds timeout);

  uint64_t sequence_;
  bool between_all_;
  std::vector<at::Tensor> results_;
  std::optional<c10::Stream> writes_on_;
  cuda::StreamEvent written_;  // of an ended work
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::atomic<int> source_{-1};
  std::exception_ptr error_;
  std::mutex asking_;  // guards what follows
  bool is_asked_for_ = false;
};

/// Several works as one, as batch_isend_irecv and the coalescing manager want it.
class JoinedWork : public c10d::Work {
 public:
  explicit JoinedWork(std::vector<c10::intrusive_ptr<c10d::Work>> works);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override { wait(kNoTimeout); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

/// Our errors as c10::DistBackendError; others, and null, as they are.
[[nodiscard]] inline std::exception_ptr as_torch_error(const std::exception_ptr& error) {
  if (!error) return nullptr;
  try {
    try {
      std::rethrow_exception(error);
    } catch (const Error& problem) {
      C10_THROW_ERROR(DistBackendError, std::string("smddp: ") + problem.what());
    }
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace smp::smddp
