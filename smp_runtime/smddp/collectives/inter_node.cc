// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/collectives/inter_node.h"

#include <algorithm>
#include <deque>
#include <thread>
#include <utility>

#include "smp_runtime/core/deadline.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/smddp/collectives/hierarchical_schedule.h"
#include "smp_runtime/smddp/collectives/mailbox_relay.h"
#include "smp_runtime/transport/fabric/network.h"
#include "smp_runtime/transport/store_gather.h"

namespace smp::collectives {
namespace {

/// Messages of all_to_all that a rank has on their way at once.
constexpr size_t kPairWindow = 4;
/// Largest group whose failure detectors connect without a hub.
constexpr int kMostWithoutHub = 64;
/// Time that a failed message waits for the detector to give the reason.
constexpr std::chrono::milliseconds kReasonGrace{2000};

/// Time after which a rank gives up other hosts whose own ranks do not come: those say so before.
constexpr std::chrono::seconds kHostGrace{5};

/// A rank that gives up tells its reason and ends; its end may be seen first, by the messages to
/// it. The reason names the rank that is to blame.
template <typename Body>
void explained(transport::SharedSegment& segment, const Body& body) {
  try {
    body();
  } catch (const HostError&) {
    const auto until = Clock::now() + kReasonGrace;
    while (Clock::now() < until) {
      segment.throw_if_aborted();
      std::this_thread::sleep_for(
          std::chrono::milliseconds(5));  // until the detector's thread speaks
    }
    throw;
  }
}

}  // namespace

transport::WaitLimit later(transport::WaitLimit limit, std::chrono::seconds by) {
  limit.deadline += by;
  return limit;
}

InterNodeCollectives::InterNodeCollectives(const topology::GroupLayout& layout,
                                           transport::SharedSegment& segment,
                                           std::span<const int> names, transport::Meeting& meeting,
                                           const transport::Network& network,
                                           const WaitLimit& limit)
    : layout_(layout),
      segment_(segment),
      settings_(transport::settings_between(
          meeting, {.host = layout.my_host(), .hosts = layout.hosts(), .local = layout.my_local()},
          network, limit)),
      link_(settings_) {
  link_.register_memory(segment.memory());
  detector_ = std::make_unique<transport::FailureDetector>(
      settings_.address, layout.rank, meeting.secret(),
      [&segment](const std::string& reason) { segment.abort(reason); },
      [&segment](int peer) { segment.note_left(peer); });
  connect_all(names, meeting, limit);
}

void InterNodeCollectives::connect_all(std::span<const int> names, transport::Meeting& meeting,
                                       const WaitLimit& limit) {
  const transport::StoreGather group{
      .store = meeting, .rank = layout_.rank, .size = layout_.size(), .limit = limit};
  const std::vector<std::string> cards =
      group.gather("fabric", transport::fabric_card(link_, *detector_));
  const auto name = [&](int rank) {
    return fmt::format("rank {}", names[static_cast<size_t>(rank)]);
  };
  // In a group of few the ranks of a rail watch each other, and each rank without one is watched by
  // those of one: who leaves first changes nothing for the others. Of many that is too much.
  const bool by_hub = layout_.size() > kMostWithoutHub;
  std::vector<transport::FailureDetector::Peer> watched;
  for (int rank = 0; rank < layout_.size(); ++rank) {
    if (rank == layout_.rank) continue;
    const transport::FabricPeer peer{
        .rank = rank, .name = name(rank), .card = cards[static_cast<size_t>(rank)]};
    const bool is_remote = layout_.host(rank) != layout_.my_host();
    if (is_remote) peer.connect(link_, name(layout_.rank));
    const bool is_of_rail =
        is_remote && layout_.local(rank) % layout_.rails == layout_.my_local() % layout_.rails;
    if (by_hub || is_of_rail) watched.push_back(peer.watched());
  }
  const auto look = [&] { meeting.look(); };
  if (by_hub) {
    detector_->connect_by_hub(watched, limit, look);
  } else {
    detector_->connect(watched, limit, look);
  }
}

std::function<void()> InterNodeCollectives::look(uint64_t sequence, const WaitLimit& limit) {
  return [this, sequence, &limit] {
    limit.look();
    segment_.throw_if_aborted();
    segment_.throw_if_any_ended(limit);
    try {
      detector_->throw_if_left(sequence, limit.operation);
    } catch (const HostError& error) {
      segment_.abort(error.what());
      throw;
    }
  };
}

void InterNodeCollectives::exchange(uint64_t sequence, ConstBytes mine, std::span<Bytes> received,
                                    const std::shared_ptr<void>& keeps, const WaitLimit& limit) {
  if (layout_.hosts() > kMostDirect) return relay(sequence, mine, received, limit);
  std::vector<Handle> incoming(received.size());
  std::vector<Handle> all;
  for (int distance = 1; distance < layout_.hosts(); ++distance) {
    const int host = (layout_.my_host() + distance) % layout_.hosts();
    const uint64_t tag =
        message_tag({.kind = MessageKind::kMailboxes, .sequence = sequence, .source = host});
    incoming[static_cast<size_t>(host)] = link_.receive_up_to(
        layout_.rank_at(host, 0), tag, received[static_cast<size_t>(host)], keeps);
    all.push_back(incoming[static_cast<size_t>(host)]);
  }
  const uint64_t tag = message_tag(
      {.kind = MessageKind::kMailboxes, .sequence = sequence, .source = layout_.my_host()});
  for (int distance = 1; distance < layout_.hosts(); ++distance) {
    const int host = (layout_.my_host() + distance) % layout_.hosts();
    all.push_back(link_.send(layout_.rank_at(host, 0), tag, mine, keeps));
  }
  // A host whose own ranks do not come says so when its time is up: that reason is the better one.
  explained(segment_, [&] { link_.wait(all, later(limit, kHostGrace), look(sequence, limit)); });
  for (size_t host = 0; host < received.size(); ++host) {
    if (incoming[host]) {
      received[host] = received[host].first(transport::FabricLink::size_bytes(*incoming[host]));
    }
  }
}

void InterNodeCollectives::relay(uint64_t sequence, ConstBytes mine, std::span<Bytes> received,
                                 const WaitLimit& limit) {
  struct Bundles {
    std::vector<std::byte> out;
    std::vector<std::byte> in;
  };
  const int here = layout_.my_host();
  const auto check = look(sequence, limit);
  const auto tag = [&](size_t step, int host) {
    return message_tag(
        {.kind = MessageKind::kMailboxes, .sequence = sequence, .round = step, .source = host});
  };
  const std::vector<RelayStep> steps = relay_steps(here, layout_.hosts());
  for (size_t number = 0; number < steps.size(); ++number) {
    const RelayStep& step = steps[number];
    std::vector<ConstBytes> handed;
    for (const int host : step.handed) {
      handed.push_back(host == here ? mine : ConstBytes(received[static_cast<size_t>(host)]));
    }
    std::vector<Bytes*> rooms;
    std::vector<size_t> sizes;
    for (const int host : step.taken) {
      rooms.push_back(&received[static_cast<size_t>(host)]);
      sizes.push_back(rooms.back()->size());
    }
    const auto bundles = std::make_shared<Bundles>(
        Bundles{.out = bundle_of(handed), .in = std::vector<std::byte>(bundle_bytes(sizes))});
    const Handle incoming = link_.receive_up_to(layout_.rank_at(step.from, 0),
                                                tag(number, step.from), bundles->in, bundles);
    const Handle outgoing =
        link_.send(layout_.rank_at(step.to, 0), tag(number, here), bundles->out, bundles);
    // Whoever waits for a host that hands nothing on, since it waits itself, has the later step:
    // the host that is to blame is named by those that wait for it.
    const WaitLimit own = later(limit, kHostGrace + std::chrono::seconds(number));
    explained(segment_, [&] { link_.wait(std::vector{incoming, outgoing}, own, check); });
    unbundle(ConstBytes(bundles->in).first(transport::FabricLink::size_bytes(*incoming)), rooms);
  }
}

void InterNodeCollectives::run(uint64_t sequence, const ChunkPlan& plan,
                               std::span<const ConstBytes> inputs, std::span<const Bytes> outputs,
                               const Reduction& reduction, const WaitLimit& limit) {
  HierarchicalSchedule schedule(layout_, segment_, link_,
                                {sequence, plan, inputs, outputs, reduction});
  explained(segment_, [&] { schedule.run(limit, look(sequence, limit)); });
}

void InterNodeCollectives::all_to_all(uint64_t sequence, std::span<const ConstBytes> inputs,
                                      std::span<const Bytes> outputs, const WaitLimit& limit) {
  const auto check = look(sequence, limit);
  std::vector<Handle> incoming;
  std::deque<Handle> outgoing;
  const int size = layout_.size();
  for (int distance = 1; distance < size; ++distance) {
    const int from = (layout_.rank - distance + size) % size;
    const Bytes room = outputs[static_cast<size_t>(from)];
    if (layout_.host(from) == layout_.my_host() || room.empty()) continue;
    incoming.push_back(link_.receive(
        from, message_tag({.kind = MessageKind::kPair, .sequence = sequence, .source = from}),
        room));
  }
  const uint64_t tag =
      message_tag({.kind = MessageKind::kPair, .sequence = sequence, .source = layout_.rank});
  try {
    for (int distance = 1; distance < size; ++distance) {
      const int to = (layout_.rank + distance) % size;
      const ConstBytes bytes = inputs[static_cast<size_t>(to)];
      if (layout_.host(to) == layout_.my_host() || bytes.empty()) continue;
      if (outgoing.size() == kPairWindow) {
        explained(segment_, [&] { link_.wait(std::vector{outgoing.front()}, limit, check); });
        outgoing.pop_front();
      }
      outgoing.push_back(link_.send(to, tag, bytes));
    }
    incoming.insert(incoming.end(), outgoing.begin(), outgoing.end());
    explained(segment_, [&] { link_.wait(incoming, limit, check); });
  } catch (...) {
    for (const Handle& one : incoming) link_.cancel(one);  // the caller may free its outputs
    throw;
  }
}

void InterNodeCollectives::completed(uint64_t collectives) { detector_->completed(collectives); }

void InterNodeCollectives::tell(std::string_view reason) { detector_->tell(reason); }

void InterNodeCollectives::leave(const WaitLimit& limit) { detector_->leave(limit); }

}  // namespace smp::collectives
