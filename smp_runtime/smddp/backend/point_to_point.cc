// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/backend/point_to_point.h"

#include <algorithm>
#include <set>
#include <utility>

#include <c10/core/StreamGuard.h>
#include <unistd.h>

#include "smp_runtime/core/deadline.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/named_thread.h"

namespace smp::smddp {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookInterval{20};
constexpr milliseconds kIdleInterval{1000};
/// While a pair waits for its address in the store.
constexpr milliseconds kStoreInterval{2};
/// Time for messages that a rank sent before its end, and for its acknowledgements, to arrive.
constexpr milliseconds kLastWords{1000};
// A message's tag: 8 bits element type, 24 bits source, 32 bits the caller's.
constexpr int kSourceShift = 32;
constexpr int kTypeShift = 56;
constexpr uint64_t kTypeBits = uint64_t{0xff} << kTypeShift;
constexpr uint64_t kSourceBits = uint64_t{0xffffff} << kSourceShift;
static_assert(static_cast<int>(at::ScalarType::NumOptions) <= 0xff);

/// An event behind what the calling thread has copied for a call.
cuda::StreamEvent copied_for(const PendingWork& work) {
  const auto& results = work.writes_on();
  return results ? cuda::StreamEvent::record(results->device()) : cuda::StreamEvent();
}

uint64_t message_tag(int source, at::ScalarType type, uint32_t tag) {
  return static_cast<uint64_t>(type) << kTypeShift | static_cast<uint64_t>(source) << kSourceShift |
         tag;
}

int source_of(uint64_t tag) { return static_cast<int>((tag & kSourceBits) >> kSourceShift); }
at::ScalarType type_of(uint64_t tag) { return static_cast<at::ScalarType>(tag >> kTypeShift); }

}  // namespace

struct PointToPoint::Call {
  WorkPointer work;
  StagingBuffer buffer;  // of a receive; of a send the contiguous tensor
  bool sends;
  int peer;
  uint32_t tag;
  milliseconds timeout;
  cuda::StreamEvent copied{};  // of a send: before it the tensor is not there
  Clock::time_point deadline = Clock::now() + timeout;
  std::string absence{};  // what became of the peer, and when it was seen
  Clock::time_point absence_seen{};
  transport::Link::Handle message{};
};

PointToPoint::PointToPoint(transport::KeyValueStore& store, std::unique_ptr<transport::Link> link,
                           Group group, End end)
    : store_(store),
      group_(std::move(group)),
      end_(std::move(end)),
      link_(std::move(link)),
      process_(getpid()) {
  store_.set(fmt::format("pair/{}", group_.rank), link_->address());
  thread_ = named_thread("smddp-pair", [this] { run(); });
}

PointToPoint::~PointToPoint() {
  if (getpid() != process_) {
    thread_.detach();  // a forked child has no such thread
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  link_->wake();
  thread_.join();
}

void PointToPoint::send(WorkPointer work, const at::Tensor& tensor, int peer, uint32_t tag,
                        milliseconds timeout) {
  StagingBuffer source(on_cpu(tensor), true);
  const cuda::StreamEvent copied = copied_for(*work);
  add(std::unique_ptr<Call>(new Call{.work = std::move(work),
                                     .buffer = std::move(source),
                                     .sends = true,
                                     .peer = peer,
                                     .tag = tag,
                                     .timeout = timeout,
                                     .copied = copied}));
}

void PointToPoint::receive(WorkPointer work, const at::Tensor& tensor, int peer, uint32_t tag,
                           milliseconds timeout) {
  add(std::unique_ptr<Call>(new Call{.work = std::move(work),
                                     .buffer = StagingBuffer(tensor, false),
                                     .sends = false,
                                     .peer = peer,
                                     .tag = tag,
                                     .timeout = timeout}));
}

void PointToPoint::add(std::unique_ptr<Call> call) {
  {
    const std::lock_guard lock(mutex_);
    added_.push_back(std::move(call));
  }
  link_->wake();
}

std::string PointToPoint::text(const Call& call) const {
  const std::string peer =
      call.peer < 0 ? "any rank"
                    : fmt::format("rank {}", group_.names[static_cast<size_t>(call.peer)]);
  return fmt::format("{} {} (tag {})", call.sends ? "send to" : "recv from", peer, call.tag);
}

/// Hands the message to the network once it is there and its peer is known.
bool PointToPoint::try_start(Call& call) {
  if (!call.copied.query() || (call.sends && !absence(call).empty())) return false;
  if (call.peer >= 0 && !link_->is_connected(call.peer)) {
    const std::string key = fmt::format("pair/{}", call.peer);
    if (!store_.has(key)) return false;
    const auto limit = transport::WaitLimit::after(call.timeout, "connecting");
    link_->connect(call.peer, fmt::format("rank {}", group_.names[static_cast<size_t>(call.peer)]),
                   store_.get(key, limit));
  }
  const auto keeps = std::make_shared<at::Tensor>(call.buffer.tensor());
  const int source = call.sends ? group_.rank : std::max(call.peer, 0);
  const uint64_t tag = message_tag(source, keeps->scalar_type(), call.tag);
  if (call.sends) {
    call.message = link_->send(call.peer, tag, bytes_in(*keeps), keeps);
  } else {
    const uint64_t ignored = kTypeBits | (call.peer < 0 ? kSourceBits : 0);
    call.message = link_->receive(call.peer, tag, bytes_out(*keeps), ignored, keeps);
  }
  return true;
}

/// Why nobody is there any more to do the other half; empty while somebody may be.
std::string PointToPoint::absence(const Call& call) const {
  using transport::Presence;
  const auto is_there = [this](int rank) { return group_.presence(rank) == Presence::kHere; };
  if (call.peer < 0) {
    for (int rank = 0; rank < static_cast<int>(group_.names.size()); ++rank) {
      if (rank != group_.rank && is_there(rank)) return {};
    }
    return "all other ranks have left the group or ended";
  }
  switch (group_.presence(call.peer)) {
    case Presence::kHere:
      return {};
    case Presence::kLeft:
      return "it has left the group; do both make the calls that fit before they end?";
    case Presence::kEnded:
      return "its process has ended; see its output";
  }
  return {};
}

/// True once the call has come to its end, which may be an exception.
bool PointToPoint::is_over(Call& call) {
  if (call.message && call.message->done()) {
    const uint64_t tag = call.message->result();
    if (!call.sends) {
      const at::ScalarType expected = call.buffer.tensor().scalar_type();
      if (type_of(tag) != expected) {
        throw HostError("{}: rank {} sent {} where {} was expected", text(call),
                        group_.names[static_cast<size_t>(source_of(tag))],
                        c10::toString(type_of(tag)), c10::toString(expected));
      }
      call.work->set_source(source_of(tag));
      const c10::OptionalStreamGuard writing(call.work->writes_on());
      call.buffer.finish();
    }
    return true;
  }
  group_.throw_if_broken();
  const auto now = Clock::now();
  if (call.absence.empty()) {
    call.absence = absence(call);
    call.absence_seen = now;
  }
  const bool may_go_on = !call.sends || call.message;  // what is on its way from or to the peer
  if (!call.absence.empty() && (!may_go_on || now > call.absence_seen + kLastWords)) {
    throw HostError("{}: {}", text(call), call.absence);
  }
  if (now > call.deadline) {
    throw HostError("{}: not done after {} ms; does the other rank make the call that fits?",
                    text(call), call.timeout.count());
  }
  return false;
}

void PointToPoint::advance(std::list<std::unique_ptr<Call>>& calls) {
  std::set<int> waiting;  // peers to whom an earlier call could not start: order is kept
  for (auto one = calls.begin(); one != calls.end();) {
    Call& call = **one;
    std::exception_ptr error;
    bool over = false;
    try {
      if (!call.message && (waiting.contains(call.peer) || !try_start(call))) {
        waiting.insert(call.peer);
      }
      over = is_over(call);
    } catch (...) {
      error = std::current_exception();
      if (call.message) link_->cancel(call.message);
      over = true;
    }
    if (over) end_(call.work, error);
    one = over ? calls.erase(one) : std::next(one);
  }
}

void PointToPoint::run() {
  std::list<std::unique_ptr<Call>> calls;
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      calls.splice(calls.end(), added_);
      if (stopping_) break;
    }
    advance(calls);
    bool unconnected = false;
    for (const auto& call : calls) unconnected = unconnected || !call->message;
    link_->wait_for_change(unconnected     ? kStoreInterval
                           : calls.empty() ? kIdleInterval
                                           : kLookInterval);
  }
  for (const auto& call : calls) {
    end_(call->work, std::make_exception_ptr(HostError("{}: the group has ended", text(*call))));
  }
}

}  // namespace smp::smddp
