// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/fabric/fabric_link.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include <fmt/ranges.h>
#include <poll.h>
#include <rdma/fi_errno.h>
#include <unistd.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/file.h"
#include "smp_runtime/core/named_thread.h"
#include "smp_runtime/transport/fabric/fabric_library.h"

namespace smp::transport {
namespace {

using std::chrono::milliseconds;

/// The longest sleep of the thread. Shorter while messages are under way: a provider may need to be
/// driven without saying so (connections that are being made).
constexpr int kIdleSleepMs = 200;
constexpr int kBusySleepMs = 5;
constexpr int kRetrySleepMs = 1;

}  // namespace

/// A thread in wait(). Comes and goes with the link locked, by `lock`, which an error may have left
/// open.
class FabricLink::Waiting {
 public:
  Waiting(FabricLink& link, std::unique_lock<std::mutex>& lock, std::span<const Handle> messages)
      : link_(link),
        lock_(lock),
        messages_(messages),
        place_(link.waiters_.insert(link.waiters_.end(), &condition)) {
    set_waiter(&condition);
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting() {
    if (!lock_.owns_lock()) lock_.lock();
    set_waiter(nullptr);
    link_.waiters_.erase(place_);
  }

  std::condition_variable condition;

 private:
  void set_waiter(std::condition_variable* waiter) {
    for (const Handle& one : messages_) static_cast<Message&>(*one).waiter_ = waiter;
  }

  FabricLink& link_;
  std::unique_lock<std::mutex>& lock_;
  const std::span<const Handle> messages_;
  const std::list<std::condition_variable*>::iterator place_;
};

FabricLink::FabricLink(const FabricSettings& settings)
    : endpoint_(settings),
      wake_file_(make_wake_file()),
      process_(getpid()),
      thread_(named_thread("smp-fabric", [this] { run(); })) {}

FabricLink::~FabricLink() {
  if (getpid() != process_) {
    thread_.detach();  // a forked child has no such thread
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  thread_.join();
}

void FabricLink::connect(int peer, const std::string& name, const std::string& address) {
  const std::lock_guard lock(mutex_);
  peers_[peer] = {endpoint_.add_peer(address), name};
}

bool FabricLink::is_connected(int peer) const {
  const std::lock_guard lock(mutex_);
  return peers_.contains(peer);
}

void FabricLink::register_memory(std::span<std::byte> region) {
  const std::lock_guard lock(mutex_);
  endpoint_.register_memory(region);
}

Link::Handle FabricLink::send(int peer, uint64_t tag, std::span<const std::byte> bytes,
                              std::shared_ptr<void> keeps) {
  return post(std::make_shared<Message>(peer, tag, bytes, std::move(keeps)));
}

Link::Handle FabricLink::receive(int peer, uint64_t tag, std::span<std::byte> bytes,
                                 uint64_t ignored, std::shared_ptr<void> keeps) {
  return post(std::make_shared<Message>(peer, tag, ignored, bytes, std::move(keeps)));
}

Link::Handle FabricLink::receive_up_to(int peer, uint64_t tag, std::span<std::byte> bytes,
                                       std::shared_ptr<void> keeps) {
  auto message = std::make_shared<Message>(peer, tag, 0, bytes, std::move(keeps));
  message->any_size_ = true;
  return post(std::move(message));
}

Link::Handle FabricLink::post(MessagePtr message) {
  std::unique_lock lock(mutex_);
  const auto peer = peers_.find(message->peer_);
  SMP_CHECK(peer != peers_.end() || message->peer_ == -1, "peer {} is not connected",
            message->peer_);
  message->peer_name_ = peer == peers_.end() ? "a rank" : peer->second.second;
  under_way_.emplace(&message->context_, message);
  std::deque<MessagePtr>& backlog = backlog_of(*message);
  if (!backlog.empty() || !try_post(*message)) {
    backlog.push_back(message);
    lock.unlock();
    wake();
  }
  return message;
}

/// False: try again later. A message that cannot be sent is done.
bool FabricLink::try_post(Message& message) {
  try {
    const auto peer = peers_.find(message.peer_);
    const uint64_t number = peer == peers_.end() ? FabricEndpoint::kAnybody : peer->second.first;
    if (!message.sends_) {
      return endpoint_.receive(number, message.tag_, message.ignored_, message.in_,
                               message.context_);
    }
    return endpoint_.send(number, message.tag_, message.out_, message.context_);
  } catch (const HostError& error) {
    finish(message, fmt::format("{}: {}", message.peer_name_, error.what()));
    under_way_.erase(&message.context_);
    return true;
  }
}

void FabricLink::finish(Message& message, std::string error) {
  message.finish(std::move(error));
  ++changes_;
  if (message.waiter_ != nullptr) message.waiter_->notify_one();
}

/// Moves what can be moved; did anything complete?
bool FabricLink::drive() {
  for (std::deque<MessagePtr>* backlog : {&receives_, &sends_}) {
    while (!backlog->empty()) {
      const MessagePtr first = backlog->front();
      if (!first->done() && !try_post(*first)) break;
      backlog->pop_front();
    }
  }
  const uint64_t before = changes_;
  for (const FabricEndpoint::Completion& one : endpoint_.poll_completions()) {
    const auto found = under_way_.find(one.context);
    if (found == under_way_.end()) continue;
    const MessagePtr message = found->second;
    under_way_.erase(found);
    message->received_ = one.size_bytes;
    if (!message->sends_) message->tag_ = one.tag;
    std::string error;
    if (one.error == FI_ETRUNC) {
      error = fmt::format("{} sent more than the {} bytes that were expected", message->peer_name_,
                          message->in_.size());
    } else if (one.error != 0) {
      error = fmt::format("the connection with {} failed: {}", message->peer_name_,
                          FabricLibrary::get().strerror(one.error));
    } else if (!message->sends_ && !message->any_size_ && one.size_bytes != message->in_.size()) {
      error = fmt::format("{} sent {} bytes where {} were expected", message->peer_name_,
                          one.size_bytes, message->in_.size());
    }
    finish(*message, std::move(error));
  }
  if (changes_ == before) return false;
  changed_.notify_all();
  return true;
}

void FabricLink::cancel(const Handle& handle) {
  const auto message = std::static_pointer_cast<Message>(handle);
  const std::lock_guard lock(mutex_);
  if (message->done()) return;
  std::deque<MessagePtr>& backlog = backlog_of(*message);
  const auto waiting = std::find(backlog.begin(), backlog.end(), message);
  if (waiting != backlog.end()) {
    backlog.erase(waiting);
    under_way_.erase(&message->context_);
    finish(*message, "cancelled");
  } else if (!message->sends_) {
    endpoint_.cancel(message->context_);
  }
}

void FabricLink::wait(std::span<const Handle> messages, const WaitLimit& limit,
                      const std::function<void()>& look, milliseconds interval) {
  auto next_look = Clock::now() + interval;
  std::unique_lock lock(mutex_);
  Waiting waiting(*this, lock, messages);
  uint64_t wakes = wakes_;
  for (const Handle& message : messages) {
    while (!message->done()) {
      if (drive()) continue;
      for (const Handle& one : messages) {
        if (one->done()) (void)one->result();  // a failure is told at once
      }
      const auto now = Clock::now();
      if (now >= next_look || wakes != wakes_) {
        wakes = wakes_;
        lock.unlock();
        look();
        lock.lock();
        next_look = now + interval;
        continue;
      }
      if (now >= limit.deadline) {
        std::set<std::string> missing;
        for (const Handle& one : messages) {
          if (!one->done()) missing.insert(static_cast<const Message&>(*one).peer_name_);
        }
        throw HostError(
            "{}: waited {} ms for {} on other hosts; do all ranks of the group make the same calls "
            "in the same order, is the timeout long enough, and does the network work?",
            limit.operation, limit.timeout.count(), fmt::join(missing, ", "));
      }
      waiting.condition.wait_until(lock, std::min(next_look, limit.deadline));
    }
  }
  for (const Handle& message : messages) (void)message->result();
}

void FabricLink::wait_for_change(milliseconds longest) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, longest, [this] { return changes_ != seen_changes_; });
  seen_changes_ = changes_;
}

void FabricLink::wake() {
  {
    const std::lock_guard lock(mutex_);
    ++changes_;
    ++wakes_;
    changed_.notify_all();
    for (std::condition_variable* waiter : waiters_) waiter->notify_one();
  }
  const uint64_t one = 1;
  // Only a full counter could refuse it, and then the thread is awake.
  [[maybe_unused]] const ssize_t written = write(wake_file_.get(), &one, sizeof(one));
}

void FabricLink::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    bool may_sleep = false;
    try {
      if (drive()) continue;
      may_sleep = endpoint_.may_sleep();
    } catch (const HostError& error) {
      // The provider itself is broken: nothing that is under way will ever be done.
      for (const auto& [context, message] : under_way_) finish(*message, error.what());
      under_way_.clear();
      sends_.clear();
      receives_.clear();
      changed_.notify_all();
    }
    const bool retries = !sends_.empty() || !receives_.empty();
    const int longest = retries ? kRetrySleepMs : !under_way_.empty() ? kBusySleepMs : kIdleSleepMs;
    const bool polled = endpoint_.wait_file() < 0;
    const bool busy = !under_way_.empty();
    lock.unlock();
    std::array<pollfd, 2> files{{{.fd = wake_file_.get(), .events = POLLIN, .revents = 0},
                                 {.fd = endpoint_.wait_file(), .events = POLLIN, .revents = 0}}};
    if (polled && busy) {
      std::this_thread::yield();
    } else if (polled || may_sleep) {
      poll(files.data(), polled ? 1 : 2, longest);
    }
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(wake_file_.get(), &count, sizeof(count));
    lock.lock();
  }
}

}  // namespace smp::transport
