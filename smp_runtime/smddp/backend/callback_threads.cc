// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/backend/callback_threads.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include <unistd.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"
#include "smp_runtime/core/named_thread.h"

namespace smp::smddp {

struct CallbackThreads::State {
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  size_t idle = 0;
  bool stopping = false;
  bool warned = false;
  const int process = getpid();
};

/// A callback that runs in the thread that told of it.
struct CallbackThreads::Here {
  const State* state = nullptr;
  std::string reason;
};

thread_local CallbackThreads::Here CallbackThreads::here;

CallbackThreads::CallbackThreads() : state_(std::make_shared<State>()) {}

CallbackThreads::~CallbackThreads() {
  if (getpid() != state_->process) return;  // a forked child may have got the lock held
  const std::lock_guard lock(state_->mutex);
  state_->stopping = true;
  state_->changed.notify_all();
}

void CallbackThreads::run(std::function<void()> callback) {
  std::string reason;
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->idle <= state_->queue.size()) {
      try {
        named_thread("smddp-callback", [state = state_] { work(state); }).detach();
      } catch (const HostError& error) {
        reason = error.what();
      }
    }
    if (reason.empty()) {
      state_->queue.push_back(std::move(callback));
      state_->changed.notify_one();
      return;
    }
    if (!std::exchange(state_->warned, true)) {
      SMP_LOG(warning, "{}: callbacks of futures run in the group's own thread", reason);
    }
  }
  const Here outer = std::exchange(here, {state_.get(), std::move(reason)});
  callback();
  here = outer;
}

std::string CallbackThreads::why_here() const {
  return here.state == state_.get() ? here.reason : std::string();
}

void CallbackThreads::work(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (true) {
    ++state->idle;
    // No deadline: an idle thread waits for the next work or the end of the group.
    state->changed.wait(lock, [&] { return !state->queue.empty() || state->stopping; });
    --state->idle;
    if (state->queue.empty()) return;
    {
      const std::function<void()> callback = std::move(state->queue.front());
      state->queue.pop_front();
      lock.unlock();
      callback();
    }
    lock.lock();
  }
}

}  // namespace smp::smddp
