// SPDX-License-Identifier: Apache-2.0
// Tells ranks that wait for each other in different calls, long before any timeout.
//
// A rank that has waited for some seconds writes the reason down where all ranks look, and polls
// those that it needs. Where none of them can go on (wait_graph.h), and several polls find the
// same, that is the diagnosis. A wait costs nothing but two short locks until then.
//
// Of many ranks that it needs, a rank polls a few: those that wait in the same call poll others of
// them, and each tells the rest which ranks in other calls it has found. So a poll costs as much in
// a job of a thousand ranks as in one of ten.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "smp_runtime/session/deadlock/wait_graph.h"
#include "smp_runtime/transport/key_value_store.h"

namespace smp::session {

class DeadlockDetector {
 public:
  struct Timing {
    std::chrono::milliseconds tell{2000};   ///< waiting this long, a rank says so
    std::chrono::milliseconds judge{3500};  ///< and this long, it polls the others
    std::chrono::milliseconds poll{700};    ///< between two polls
    int confirmations = 3;                  ///< polls that find the same
  };

  /// `store` is all ranks'; one thread at a time calls it here. Where it is lost, nobody is judged
  /// any more. `line`, which may be empty, says where the script is; it is called on the watch's
  /// own thread.
  DeadlockDetector(std::shared_ptr<transport::KeyValueStore> store, int rank,
                   std::function<std::string()> line, Timing timing);
  DeadlockDetector(std::shared_ptr<transport::KeyValueStore> store, int rank,
                   std::function<std::string()> line)
      : DeadlockDetector(std::move(store), rank, std::move(line), Timing{}) {}
  ~DeadlockDetector();
  DeadlockDetector(const DeadlockDetector&) = delete;
  DeadlockDetector& operator=(const DeadlockDetector&) = delete;

  /// The ranks of the job that a group of the session's has, by the group's name; none of others.
  void add_group(const std::string& name, std::vector<int> ranks);
  [[nodiscard]] std::vector<int> members(const std::string& group) const;

  /// This rank begins `call`, which does not end without the ranks `needs` (itself left out). Each
  /// of them begins calls of the same `label` in the same order. Of several at a time, nested or on
  /// several threads, the last one counts. Returns a number for end(). Blocks only where the call
  /// before was waited for so long that it is written down. Throws CallMismatch once check() has:
  /// ranks that were in calls that wait for each other are apart from then on, also where the
  /// script went on. `turn` is that of a call that start() has counted; without one it counts here.
  std::int64_t begin(std::string call, const std::string& label, std::vector<int> needs,
                     std::optional<std::int64_t> turn = {});
  /// For calls that are waited for later: counts the call, whose turn it returns. Once check() has
  /// thrown, nothing counts any more.
  std::int64_t start(const std::string& label);
  void end(std::int64_t number) noexcept;

  /// Why the call that was begun last can never end; empty as long as it may. A wait asks for it
  /// about once a second.
  [[nodiscard]] std::string diagnosis() const;
  /// Throws CallMismatch with the diagnosis, if there is one; no call can be begun any more then,
  /// which those that still wait for this rank are told.
  void check();
  /// The call that was begun last has failed, perhaps since a rank that it needs was told of a
  /// mismatch, and left: throws CallMismatch with what that one was told, or with what the last
  /// polls found. Asks the store.
  void check_failed();

  /// This rank leaves the job: ends the watch, and tells those that still wait for it.
  void leave() noexcept;

 private:
  struct Call {
    std::int64_t number;
    std::string text;
    std::string label;
    std::int64_t turn;
    std::vector<int> needs;
    std::chrono::steady_clock::time_point since;
    bool told = false;
    int polls = 0;
  };

  void watch();
  /// Polls for the last call, without the lock on the calls.
  void poll(const Call& call);
  [[nodiscard]] Wait described(const Call& call) const;
  /// Polls `window` of the ranks that the call needs if they are many.
  [[nodiscard]] std::map<int, Wait> waits_around(const Call& call, std::size_t window);
  [[nodiscard]] std::vector<int> told_of(const std::string& label);
  void poll_window(const Call& call, std::size_t window, std::map<int, Wait>& waits);
  void judge(const Call& call, const std::map<int, Wait>& waits);
  [[nodiscard]] bool take_back_last() noexcept;
  void clear() noexcept;
  void write_final(bool ended) noexcept;
  void stop() noexcept;

  const int rank_;
  const std::function<std::string()> line_;
  const Timing timing_;

  std::mutex store_mutex_;  ///< taken before mutex_
  std::shared_ptr<transport::KeyValueStore> store_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Call> calls_;
  std::map<std::string, std::vector<int>> groups_;
  std::map<std::string, std::int64_t> begun_;
  std::int64_t waits_ = 0;
  std::string diagnosis_;
  std::string mismatch_;  ///< the diagnosis that check() threw
  bool stopping_ = false;

  std::string line_of_call_;  ///< of the script, in the call that was written down last

  std::size_t window_ = 1;  ///< ranks of many that the next poll looks at; under store_mutex_
  std::size_t next_ = 0;    ///< where among them it begins, likewise

  std::vector<std::int64_t> found_;  ///< ranks and numbers of the last path; under store_mutex_
  std::string suspicion_;            ///< what it would mean
  int confirmations_ = 0;            ///< polls in a row that found it

  std::thread thread_;
};

/// Around a call that waits for other ranks: `watch`, if there is one, sees it (its begin()).
class WaitingCall {
 public:
  WaitingCall(DeadlockDetector* watch, std::string call, const std::string& label,
              std::vector<int> needs, std::optional<std::int64_t> turn = {})
      : watch_(watch),
        number_(watch ? watch->begin(std::move(call), label, std::move(needs), turn) : 0) {}
  ~WaitingCall() {
    if (watch_) watch_->end(number_);
  }
  WaitingCall(WaitingCall&& other) noexcept
      : watch_(std::exchange(other.watch_, nullptr)), number_(other.number_) {}
  WaitingCall& operator=(WaitingCall&&) = delete;

 private:
  DeadlockDetector* watch_;
  std::int64_t number_;
};

}  // namespace smp::session
