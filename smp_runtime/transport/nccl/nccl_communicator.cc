// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/nccl/nccl_communicator.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "smp_runtime/core/error.h"
#include "smp_runtime/transport/nccl/nccl_advice.h"

namespace smp::transport {
namespace {

using State = NcclOutcome::State;

/// Looks often at first: most waits are short. Then seldom enough to leave the core to others.
class Pause {
 public:
  void next() {
    if (++looks_ < 100) return std::this_thread::yield();
    std::this_thread::sleep_for(looks_ < 1000 ? std::chrono::microseconds(20)
                                              : std::chrono::microseconds(200));
  }
  [[nodiscard]] bool is_tenth() const { return looks_ % 10 == 0; }

 private:
  int looks_ = 0;
};

}  // namespace

NcclCommunicator::NcclCommunicator(NcclLibrary& library, const NcclId& id, Place place)
    : library_(library), place_(std::move(place)) {
  begun_ = library_.begin(handle_, id, place_.rank, place_.size);
}

/// No other thread uses it any more.
NcclCommunicator::~NcclCommunicator() {
  if (handle_ == nullptr) return;
  if (!under_way_ && close()) {
    library_.destroy(handle_);
  } else {
    library_.abort(handle_);
  }
}

bool NcclCommunicator::close() const {
  const auto deadline = Clock::now() + kCloseLimit;
  NcclOutcome outcome = library_.finalize(handle_);
  Pause pause;
  while (outcome.state == State::kInProgress && Clock::now() < deadline) {
    pause.next();
    outcome = library_.state(handle_);
  }
  return outcome.state == State::kDone;
}

void NcclCommunicator::connect(const WaitLimit& limit) {
  complete([this](NcclLibrary::Handle) { return begun_; }, limit);
  set_under_way(false);
}

void NcclCommunicator::start(std::span<const NcclOperation> operations, void* stream,
                             const WaitLimit& limit) {
  if (!operations.empty()) set_under_way(true);
  while (!operations.empty()) {
    const auto group = operations.first(std::min(operations.size(), kMostTogether));
    complete([&](NcclLibrary::Handle handle) { return library_.launch(handle, group, stream); },
             limit);
    operations = operations.subspan(group.size());
  }
}

void NcclCommunicator::complete(const Call& call, const WaitLimit& limit) {
  NcclOutcome outcome = ask(call);
  Pause pause;
  while (outcome.state == State::kInProgress) {
    check(outcome, limit);
    pause.next();
    outcome = ask([this](NcclLibrary::Handle handle) { return library_.state(handle); });
  }
  if (outcome.state == State::kFailed) fail(outcome.reason);
}

void NcclCommunicator::wait_until(const std::function<bool()>& reached, const WaitLimit& limit) {
  Pause pause;
  while (!reached()) {
    pause.next();
    if (!pause.is_tenth()) continue;
    limit.look();
    check(ask([this](NcclLibrary::Handle handle) { return library_.state(handle); }), limit);
  }
  // An aborted kernel ends early, and what it was to write is not there.
  const NcclOutcome last =
      ask([this](NcclLibrary::Handle handle) { return library_.state(handle); });
  if (last.state == State::kFailed) fail(last.reason);
  set_under_way(false);
}

void NcclCommunicator::set_under_way(bool is) {
  const std::lock_guard lock(mutex_);
  if (ended_.empty()) under_way_ = is;
}

void NcclCommunicator::check(const NcclOutcome& outcome, const WaitLimit& limit) {
  if (outcome.state == State::kFailed) fail(outcome.reason);
  if (Clock::now() < limit.deadline) return;
  fail(fmt::format("{} is not done after {} ms; another rank is late, stopped or has ended",
                   limit.operation, limit.timeout.count()));
}

/// NCCL takes one call at a time on a communicator.
NcclOutcome NcclCommunicator::ask(const Call& call) {
  const std::lock_guard lock(mutex_);
  if (!ended_.empty()) throw HostError("{}: {}", place_.name, ended_);
  return call(handle_);
}

void NcclCommunicator::fail(const std::string& cause) {
  const std::string reason = fmt::format("{}{}", cause, nccl_advice(cause));
  set_under_way(true);  // even if it is one of NCCL's own threads that failed
  abort(reason);
  throw HostError("{}: {}", place_.name, reason);
}

void NcclCommunicator::abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!ended_.empty()) return;
  ended_ = reason;
  if (under_way_) library_.abort(std::exchange(handle_, nullptr));
}

}  // namespace smp::transport
