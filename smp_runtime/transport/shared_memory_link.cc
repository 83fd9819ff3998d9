// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/shared_memory_link.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>

#include "smp_runtime/core/cache_line.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/transport/futex.h"
#include "smp_runtime/transport/link_frame.h"
#include "smp_runtime/transport/shared_ring.h"
#include "smp_runtime/transport/transport.h"

namespace smp::transport {
namespace {

using Kind = LinkFrame::Kind;

/// Copied at a time, so that one end writes while the other one reads.
constexpr size_t kPiece = 128 * 1024;

size_t memory_bytes(size_t ranks) { return kCacheLineBytes + ranks * SharedRing::size_bytes(); }

SharedRing ring_in(const SharedMemory& memory, size_t writer) {
  return SharedRing(memory.data() + kCacheLineBytes + writer * SharedRing::size_bytes());
}

}  // namespace

struct SharedMemoryLink::Posted : Link::Message {
  using Link::Message::Message;
  friend class SharedMemoryLink;
  [[nodiscard]] bool takes(const Arrival& arrival) const;
};

/// A frame that is to be written into a ring.
struct SharedMemoryLink::Outgoing {
  LinkFrame frame;
  PostedPtr message;  ///< of kShort and kData
  std::string text;   ///< of kHello
  size_t written = 0;

  [[nodiscard]] std::span<const std::byte> body() const {
    return message ? message->out_ : std::as_bytes(std::span(text));
  }
};

/// A short message, or the request to send a long one, that has arrived.
struct SharedMemoryLink::Arrival {
  int source;
  LinkFrame frame;
  std::vector<std::byte> data;
};

bool SharedMemoryLink::Posted::takes(const Arrival& arrival) const {
  return (peer_ < 0 || peer_ == arrival.source) && ((tag_ ^ arrival.frame.tag) & ~ignored_) == 0;
}

struct SharedMemoryLink::Peer {
  explicit Peer(SharedRing from) : inward(from) {}

  bool known = false;
  std::string failure;  ///< why its memory cannot be opened
  std::optional<SharedMemory> memory;
  std::optional<SharedRing> outward;
  std::deque<Outgoing> queue;

  SharedRing inward;
  LinkFrame frame;              ///< that is being read
  size_t read = 0;              ///< of it and its body
  PostedPtr target;             ///< of kData; null: nobody wants them any more
  std::vector<std::byte> rest;  ///< of other bodies; of kData without a target the last piece
};

SharedMemoryLink::SharedMemoryLink(int rank, std::vector<std::string> names)
    : rank_(rank),
      names_(std::move(names)),
      memory_(SharedMemory::create(memory_bytes(names_.size()))) {
  static_assert(sizeof(Doorbell) == kCacheLineBytes && std::is_trivially_copyable_v<LinkFrame>);
  peers_.reserve(names_.size());
  for (size_t writer = 0; writer < names_.size(); ++writer) {
    peers_.emplace_back(ring_in(memory_, writer));
  }
}

SharedMemoryLink::~SharedMemoryLink() = default;

Doorbell& SharedMemoryLink::doorbell_of(const SharedMemory& memory) {
  return *reinterpret_cast<Doorbell*>(memory.data());
}

SharedMemoryLink::Peer& SharedMemoryLink::peer_at(int rank) {
  return peers_[static_cast<size_t>(rank)];
}

void SharedMemoryLink::connect(int peer, const std::string& /*name*/, const std::string& address) {
  if (!peer_at(peer).known) open(peer, address);
}

bool SharedMemoryLink::is_connected(int peer) const {
  return peers_[static_cast<size_t>(peer)].known;
}

/// A peer that has ended by now cannot be reached, but what it wrote before can be read.
void SharedMemoryLink::open(int from, const std::string& address) {
  Peer& other = peer_at(from);
  other.known = true;
  try {
    other.memory.emplace(SharedMemory::open(address, memory_.size_bytes()));
  } catch (const HostError& error) {
    other.failure =
        fmt::format("{} cannot be reached: {}", names_[static_cast<size_t>(from)], error.what());
    return;
  }
  other.outward.emplace(ring_in(*other.memory, static_cast<size_t>(rank_)));
  Outgoing hello{.frame = {.kind = Kind::kHello}, .message = nullptr, .text = this->address()};
  hello.frame.size = hello.text.size();
  other.queue.push_back(std::move(hello));
}

void SharedMemoryLink::queue(int to, const LinkFrame& frame, PostedPtr message) {
  peer_at(to).queue.push_back({.frame = frame, .message = std::move(message), .text = {}});
}

void SharedMemoryLink::finish(Posted& message, std::string error) {
  message.finish(std::move(error));
  changed_ = true;
}

Link::Handle SharedMemoryLink::send(int peer, uint64_t tag, std::span<const std::byte> bytes,
                                    std::shared_ptr<void> keeps) {
  SMP_CHECK(is_connected(peer), "peer {} is not connected", peer);
  auto message = std::make_shared<Posted>(peer, tag, bytes, std::move(keeps));
  if (const std::string& failure = peer_at(peer).failure; !failure.empty()) {
    finish(*message, failure);
  } else if (bytes.size() <= kShortBytes) {
    queue(peer, {.kind = Kind::kShort, .tag = tag, .size = bytes.size()}, message);
  } else {
    const uint64_t number = ++requests_;
    requested_.emplace(Place{peer, number}, message);
    queue(peer, {.kind = Kind::kRequestToSend, .tag = tag, .number = number, .size = bytes.size()},
          nullptr);
  }
  return message;
}

Link::Handle SharedMemoryLink::receive(int peer, uint64_t tag, std::span<std::byte> bytes,
                                       uint64_t ignored, std::shared_ptr<void> keeps) {
  auto message = std::make_shared<Posted>(peer, tag, ignored, bytes, std::move(keeps));
  const auto found = std::find_if(unexpected_.begin(), unexpected_.end(),
                                  [&](const Arrival& one) { return message->takes(one); });
  if (found == unexpected_.end()) {
    posted_.push_back(message);
  } else {
    const Arrival arrival = std::move(*found);
    unexpected_.erase(found);
    deliver(message, arrival);
  }
  return message;
}

void SharedMemoryLink::cancel(const Handle& handle) {
  const auto message = std::static_pointer_cast<Posted>(handle);
  if (message->done()) return;
  if (!message->sends_) {
    posted_.remove(message);
    for (auto& [place, wanted] : cleared_) {
      if (wanted == message) wanted = nullptr;
    }
    for (Peer& one : peers_) {
      if (one.target == message) one.target = nullptr;
    }
    return finish(*message, "cancelled");
  }
  for (Outgoing& one : peer_at(message->peer_).queue) {
    if (one.message != message) continue;
    if (one.written > 0) return;  // the ring has its start: it must go on
    // Nobody waits for a short one; who has asked for data must be told.
    one = {
        .frame = {.kind = Kind::kGone, .number = one.frame.number}, .message = nullptr, .text = {}};
    break;
  }
  std::erase_if(requested_, [&](const auto& one) { return one.second == message; });
  finish(*message, "cancelled");
}

void SharedMemoryLink::arrive(Arrival arrival) {
  const auto found = std::find_if(posted_.begin(), posted_.end(),
                                  [&](const PostedPtr& one) { return one->takes(arrival); });
  if (found == posted_.end()) {
    unexpected_.push_back(std::move(arrival));
    return;
  }
  const PostedPtr message = *found;
  posted_.erase(found);
  deliver(message, arrival);
}

void SharedMemoryLink::deliver(const PostedPtr& message, const Arrival& arrival) {
  const LinkFrame& frame = arrival.frame;
  const bool fits = frame.size == message->in_.size();
  message->tag_ = frame.tag;
  if (frame.kind == Kind::kRequestToSend) {
    if (const std::string& failure = peer_at(arrival.source).failure; !failure.empty()) {
      return finish(*message, failure);
    }
    // A message that does not fit is read as well, so that its sender comes to an end.
    cleared_.emplace(Place{arrival.source, frame.number}, fits ? message : nullptr);
    queue(arrival.source, {.kind = Kind::kClearToSend, .number = frame.number}, nullptr);
  } else if (fits) {
    if (frame.size > 0) std::memcpy(message->in_.data(), arrival.data.data(), frame.size);
    finish(*message, "");
  }
  if (!fits) {
    finish(*message, fmt::format("{} sent {} bytes where {} were expected",
                                 names_[static_cast<size_t>(arrival.source)], frame.size,
                                 message->in_.size()));
  }
}

void SharedMemoryLink::wait_for_change(std::chrono::milliseconds longest) {
  const auto deadline = Clock::now() + longest;
  Doorbell& doorbell = doorbell_of(memory_);
  while (true) {
    const uint32_t heard = doorbell.count.load();
    const bool moved = drive();
    if (woken_.exchange(false)) changed_ = true;
    if (std::exchange(changed_, false)) return;
    const auto now = Clock::now();
    if (now >= deadline) return;
    if (moved) continue;
    doorbell.sleeps.store(1);
    futex_wait(doorbell.count, heard,
               std::chrono::duration_cast<std::chrono::microseconds>(deadline - now));
    doorbell.sleeps.store(0);
  }
}

void SharedMemoryLink::wake() {
  woken_.store(true);
  doorbell_of(memory_).ring();
}

/// Moves what can be moved now, at most a ring full each way of each pair; did anything?
bool SharedMemoryLink::drive() {
  bool moved = false;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    if (read_from(rank)) moved = true;
    if (write_to(peer_at(rank))) moved = true;
  }
  return moved;
}

bool SharedMemoryLink::write_to(Peer& to) {
  size_t moved = 0;
  while (to.outward && !to.queue.empty() && moved < SharedRing::kCapacity) {
    Outgoing& first = to.queue.front();
    const auto frame = std::as_bytes(std::span(&first.frame, 1));
    const auto body = first.body();
    const auto left = first.written < frame.size() ? frame.subspan(first.written)
                                                   : body.subspan(first.written - frame.size());
    const size_t wrote = to.outward->write_some(left.first(std::min(left.size(), kPiece)));
    first.written += wrote;
    moved += wrote;
    if (wrote == kPiece) doorbell_of(*to.memory).ring();
    if (first.written == frame.size() + body.size()) {
      if (first.message) finish(*first.message, "");
      to.queue.pop_front();
    } else if (wrote == 0) {
      break;
    }
  }
  if (moved > 0) doorbell_of(*to.memory).ring();
  return moved > 0;
}

bool SharedMemoryLink::read_from(int from) {
  Peer& other = peer_at(from);
  size_t moved = 0;
  while (moved < SharedRing::kCapacity) {
    std::span<std::byte> room;
    if (other.read < sizeof(LinkFrame)) {
      room = std::as_writable_bytes(std::span(&other.frame, 1)).subspan(other.read);
    } else {
      const size_t done = other.read - sizeof(LinkFrame);
      const size_t left = std::min(other.frame.body_bytes() - done, kPiece);
      if (other.target) {
        room = other.target->in_.subspan(done, left);
      } else if (other.frame.kind == Kind::kData) {
        other.rest.resize(left);
        room = other.rest;
      } else {
        room = std::span(other.rest).subspan(done, left);
      }
    }
    const size_t got = other.inward.read_some(room);
    other.read += got;
    moved += got;
    if (got == kPiece && other.memory) doorbell_of(*other.memory).ring();
    if (other.read == sizeof(LinkFrame) && got > 0) begin_body(from);
    if (other.read >= sizeof(LinkFrame) &&
        other.read == sizeof(LinkFrame) + other.frame.body_bytes()) {
      end_body(from);
      other.read = 0;
    } else if (got == 0) {
      break;
    }
  }
  if (moved > 0 && other.memory) doorbell_of(*other.memory).ring();
  return moved > 0;
}

/// A frame is there, and what belongs to it follows.
void SharedMemoryLink::begin_body(int from) {
  Peer& other = peer_at(from);
  const size_t size = other.frame.body_bytes();
  if (other.frame.kind != Kind::kData) {
    SMP_CHECK(size <= kShortBytes, "{} announced {} bytes as a short message",
              names_[static_cast<size_t>(from)], size);
    other.rest.resize(size);
    return;
  }
  const auto wanted = cleared_.find({from, other.frame.number});
  SMP_CHECK(wanted != cleared_.end(), "data of {} that nobody asked for",
            names_[static_cast<size_t>(from)]);
  other.target = wanted->second;
  SMP_CHECK(!other.target || size == other.target->in_.size(), "{} announced {} bytes, not {}",
            names_[static_cast<size_t>(from)], size, other.target->in_.size());
  cleared_.erase(wanted);
}

void SharedMemoryLink::end_body(int from) {
  Peer& other = peer_at(from);
  const LinkFrame& frame = other.frame;
  switch (frame.kind) {
    case Kind::kHello:
      if (!other.known) {
        open(from, {reinterpret_cast<const char*>(other.rest.data()), other.rest.size()});
      }
      break;
    case Kind::kShort:
    case Kind::kRequestToSend:
      arrive({.source = from, .frame = frame, .data = std::exchange(other.rest, {})});
      break;
    case Kind::kClearToSend: {
      const auto message = requested_.find({from, frame.number});
      if (message == requested_.end()) {
        queue(from, {.kind = Kind::kGone, .number = frame.number}, nullptr);
      } else {
        queue(from,
              {.kind = Kind::kData, .number = frame.number, .size = message->second->out_.size()},
              message->second);
        requested_.erase(message);
      }
      break;
    }
    case Kind::kData:
      if (other.target) finish(*other.target, "");
      other.target = nullptr;
      break;
    case Kind::kGone: {
      const auto wanted = cleared_.find({from, frame.number});
      if (wanted == cleared_.end()) break;  // of a short message that was given up
      if (wanted->second) {
        finish(*wanted->second,
               fmt::format("{} gave up sending", names_[static_cast<size_t>(from)]));
      }
      cleared_.erase(wanted);
      break;
    }
  }
}

}  // namespace smp::transport
