// SPDX-License-Identifier: Apache-2.0
// Threads that tell that works have ended.
//
// What is told may wait for another work: a callback of a future often starts a collective and
// waits for it. So it runs neither in the thread that runs the collectives nor behind another
// callback: where all threads are taken there is one more. Where the system makes no more it runs
// where it is told, and may not call the group, whose thread it holds up.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace smp::smddp {

class CallbackThreads {
 public:
  CallbackThreads();
  CallbackThreads(const CallbackThreads&) = delete;
  CallbackThreads& operator=(const CallbackThreads&) = delete;
  /// Does not wait: a callback may need Python's lock, which the caller may hold. The threads do
  /// what is left and end by themselves.
  ~CallbackThreads();

  /// Runs `callback`, which must not throw, in one of the threads, or in the caller's.
  void run(std::function<void()> callback);

  /// Reason for which no thread could be made, for a caller that is such a callback, in the thread
  /// that told of the end; else empty.
  [[nodiscard]] std::string why_here() const;

 private:
  struct State;
  struct Here;
  static thread_local Here here;
  static void work(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;
};

}  // namespace smp::smddp
