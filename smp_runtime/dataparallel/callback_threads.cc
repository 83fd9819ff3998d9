// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/dataparallel/callback_threads.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include <pthread.h>
#include <unistd.h>

namespace smp::dataparallel {

struct CallbackThreads::State {
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  size_t idle = 0;
  bool stopping = false;
  const int process = getpid();
};

CallbackThreads::CallbackThreads() : state_(std::make_shared<State>()) {}

CallbackThreads::~CallbackThreads() {
  if (getpid() != state_->process) return;  // a forked child may have got the lock held
  const std::lock_guard lock(state_->mutex);
  state_->stopping = true;
  state_->changed.notify_all();
}

void CallbackThreads::run(std::function<void()> callback) {
  const std::lock_guard lock(state_->mutex);
  state_->queue.push_back(std::move(callback));
  if (state_->idle >= state_->queue.size()) {
    state_->changed.notify_one();
    return;
  }
  std::thread thread([state = state_] { work(state); });
  pthread_setname_np(thread.native_handle(), "smddp-callback");
  thread.detach();  // it owns the state
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

}  // namespace smp::dataparallel
