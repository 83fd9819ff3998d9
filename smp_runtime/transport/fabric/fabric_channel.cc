// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/fabric/fabric_channel.h"

#include <cstring>
#include <string>
#include <utility>

#include "smp_runtime/core/error.h"
#include "smp_runtime/transport/fabric/network.h"

namespace smp::transport {
namespace {

/// Interval of looks at what does not wake the link.
constexpr std::chrono::milliseconds kLookInterval{500};

/// An idle peer sends nothing: its next message is waited for without a limit.
WaitLimit no_limit() { return {.deadline = Clock::time_point::max(), .operation = "pipeline"}; }

FabricEnds open_ends(const Network& network, int rank, const JobSecret* secret) {
  const FabricSettings settings = fabric_settings(network, rank);
  FabricEnds ends{.link = std::make_unique<FabricLink>(settings)};
  ends.detector = std::make_unique<FailureDetector>(
      settings.address, rank, secret,
      [link = ends.link.get()](const std::string&) { link->wake(); });
  return ends;
}

std::string name_of(int rank) { return fmt::format("rank {} of the pipeline group", rank); }

}  // namespace

FabricChannel::FabricChannel(FabricLink& link, const FailureDetector& detector, const Ends& ends)
    : link_(link), detector_(detector), ends_(ends) {
  post_packet_receive();
}

/// Networks keep no order and match by tags alone: these tell all apart that may be under way.
uint64_t FabricChannel::tag(Kind kind, int source, uint32_t sequence, size_t index) {
  SMP_CHECK(source < 1 << 12 && index < 1 << 16, "rank {}, part {} of a message", source, index);
  return static_cast<uint64_t>(kind) << 60 | static_cast<uint64_t>(source) << 48 |
         static_cast<uint64_t>(index) << 32 | sequence;
}

bool FabricChannel::send_at_once(std::span<const Part> message, const Owner& owner) {
  if (size_bytes(message) > kSmallBytes) return false;
  look();
  post(message, owner);  // whether it arrives, the detector tells
  return true;
}

void FabricChannel::send(std::span<const Part> message, const Owner& owner) {
  wait(post(message, owner), no_limit());
}

std::vector<FabricChannel::Handle> FabricChannel::post(std::span<const Part> message,
                                                       const Owner& owner) {
  const uint32_t sequence = sent_++;
  const auto packet = std::make_shared<Buffer>();
  Packing packing;
  std::vector<size_t> outside;  // the packet
  for (const Part& part : message) {
    if (packing.takes(part.size())) {
      packet->insert(packet->end(), part.begin(), part.end());
    } else {
      outside.push_back(packing.parts);
    }
  }
  std::vector<Handle> handles{
      link_.send(ends_.peer, tag(Kind::kPacket, ends_.rank, sequence), *packet, packet)};
  for (const size_t number : outside) {
    handles.push_back(link_.send(ends_.peer, tag(Kind::kPart, ends_.rank, sequence, number),
                                 message[number - 1], owner));
  }
  return handles;
}

/// One packet ahead: what has a place to go to arrives sooner.
void FabricChannel::post_packet_receive() {
  next_packet_ = std::make_shared<Buffer>(kPacketBytes);
  packet_receive_ = link_.receive_up_to(ends_.peer, tag(Kind::kPacket, ends_.peer, received_),
                                        *next_packet_, next_packet_);
}

void FabricChannel::receive_header(Room header) {
  wait(std::span(&packet_receive_, 1), no_limit());
  packet_ = std::move(next_packet_);
  rest_ = Part(*packet_).first(FabricLink::size_bytes(*packet_receive_));
  packing_ = {};
  ++received_;
  post_packet_receive();
  SMP_CHECK(take(header), "a header of {} bytes", header.size());
}

/// Copies a part of the packet; false: it comes by itself.
bool FabricChannel::take(Room part) {
  if (!packing_.takes(part.size())) return false;
  SMP_CHECK(rest_.size() >= part.size(), "a packet ends {} bytes early",
            part.size() - rest_.size());
  if (!part.empty()) std::memcpy(part.data(), rest_.data(), part.size());
  rest_ = rest_.subspan(part.size());
  return true;
}

void FabricChannel::receive(std::span<const Room> parts, const Owner& owner) {
  std::vector<Handle> handles;
  for (const Room& part : parts) {
    if (take(part)) continue;
    const uint64_t expected = tag(Kind::kPart, ends_.peer, received_ - 1, packing_.parts);
    handles.push_back(link_.receive(ends_.peer, expected, part, 0, owner));
  }
  wait(handles, no_limit());
}

void FabricChannel::give_credit() {
  const auto byte = std::make_shared<Buffer>(1);
  link_.send(ends_.peer, tag(Kind::kCredit, ends_.rank, given_++), *byte, byte);
}

void FabricChannel::await_credit(const WaitLimit& limit) {
  const auto byte = std::make_shared<Buffer>(1);
  const Handle handle =
      link_.receive(ends_.peer, tag(Kind::kCredit, ends_.peer, awaited_++), *byte, 0, byte);
  wait(std::span(&handle, 1), limit);
}

void FabricChannel::wait(std::span<const Handle> messages, const WaitLimit& limit) {
  try {
    link_.wait(
        messages, limit, [this] { look(); }, kLookInterval);
  } catch (const HostError&) {
    look();  // the detector knows better why a message failed
    throw;
  }
}

void FabricChannel::look() const {
  if (aborted_.load()) throw HostError("closed");
  if (const std::string problem = detector_.failure_of(ends_.peer); !problem.empty()) {
    throw HostError(problem);
  }
}

void FabricChannel::abort() {
  aborted_.store(true);
  link_.wake();
}

FabricEnds connect_fabric(const StoreGather& group, const Network& network,
                          std::vector<std::unique_ptr<ByteChannel>>& channels) {
  std::vector<int> remote;
  for (int peer = 0; peer < group.size; ++peer) {
    if (peer != group.rank && !channels[static_cast<size_t>(peer)]) remote.push_back(peer);
  }
  if (remote.empty()) return {};
  FabricEnds ends = open_ends(network, group.rank, group.store.secret());
  const auto key = [](int rank) { return fmt::format("fabric/{}", rank); };
  group.store.set(key(group.rank), fabric_card(*ends.link, *ends.detector));
  std::vector<FailureDetector::Peer> peers;
  for (const int rank : remote) {
    const FabricPeer peer{
        .rank = rank, .name = name_of(rank), .card = group.store.get(key(rank), group.limit)};
    peer.connect(*ends.link, name_of(group.rank));
    peers.push_back(peer.watched());
  }
  ends.detector->connect(peers, group.limit);
  for (const int peer : remote) {
    channels[static_cast<size_t>(peer)] = std::make_unique<FabricChannel>(
        *ends.link, *ends.detector, FabricChannel::Ends{.rank = group.rank, .peer = peer});
  }
  return ends;
}

}  // namespace smp::transport
