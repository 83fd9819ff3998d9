// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/collectives/hierarchical_schedule.h"

#include <algorithm>
#include <map>
#include <utility>

#include "smp_runtime/core/cache_line.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/smddp/collectives/inter_node.h"
#include "smp_runtime/smddp/collectives/reduce_kernels.h"

// Why 4 + 2 kLag buffers are enough. In turn j a rank copies round j into buffer j mod 12, then
// waits until all have copied round j-1 in, and at last reads round j-1-2*kLag, j-9. When it is
// about to copy round j+1 in, over round j-11, all have begun turn j-1 and so have read round
// j-2-9 = j-11.

namespace smp::collectives {
namespace {

static_assert(transport::SharedSegment::kBuffers >= 4 + 2 * kLag);

constexpr std::chrono::seconds kGrace{10};

/// Size of a host's part of a sum in elements, see part_size_bytes(); a single rank's contribution
/// is as large as its element.
size_t growth_of(const topology::GroupLayout& layout, const HierarchicalSchedule::Job& job) {
  const auto adds_up = [](const auto& ranks) { return ranks.size() > 1; };
  if (job.plan.arrival != Arrival::kSum || std::ranges::none_of(layout.ranks_on, adds_up)) return 1;
  return part_size_bytes(job.reduction.type, job.reduction.op) / size_bytes(job.reduction.type);
}

}  // namespace

HierarchicalSchedule::HierarchicalSchedule(const topology::GroupLayout& layout,
                                           transport::SharedSegment& segment,
                                           transport::FabricLink& link, const Job& job)
    : layout_(layout),
      segment_(segment),
      link_(link),
      job_(job),
      me_(layout.my_local()),
      here_(layout.my_host()),
      growth_(growth_of(layout, job)),
      cut_(ScheduleRounds::of(job.plan, layout.hosts(),
                              {.buffer_bytes = segment.shape().buffer_bytes,
                               .growth = growth_,
                               .largest_pieces = link.provider().starts_with("efa")})),
      others_(hosts_after(here_, layout.hosts())),
      rounds_(transport::SharedSegment::kBuffers) {
  for (size_t chunk = 0; chunk < job.plan.chunks.size(); ++chunk) {
    if (leads(chunk)) led_.push_back(chunk);
  }
  std::ranges::stable_sort(led_, {},
                           [&](size_t chunk) { return behind_us(job.plan.chunks[chunk].host); });
}

size_t HierarchicalSchedule::piece_bytes(size_t chunk, size_t number) const {
  return cut_.bytes_of(job_.plan.chunks[chunk], number);
}

Bytes HierarchicalSchedule::place(int local, size_t chunk, size_t number) const {
  return {segment_.buffer(local, number) + chunk * growth_ * cut_.piece_bytes,
          piece_bytes(chunk, number)};
}

/// Place of the sum over this host's ranks; at last of the value.
Bytes HierarchicalSchedule::own_part(size_t chunk, size_t number) const {
  return {place(me_, chunk, number).data(), growth_ * piece_bytes(chunk, number)};
}

Bytes HierarchicalSchedule::incoming_part(size_t chunk, int host, size_t number) const {
  const size_t index = cut_.incoming[chunk] + static_cast<size_t>(host);
  return {segment_.buffer(me_, number) + index * growth_ * cut_.piece_bytes,
          growth_ * piece_bytes(chunk, number)};
}

/// Does this rank's rail move the chunk?
bool HierarchicalSchedule::leads(size_t chunk) const { return job_.plan.chunks[chunk].rail == me_; }

/// Number of hosts behind this one, in a circle; this one is the last.
int HierarchicalSchedule::behind_us(int host) const {
  return (host - here_ - 1 + layout_.hosts()) % layout_.hosts();
}

/// The local rank in whose buffer the chunk's value lies at the end.
int HierarchicalSchedule::value_rank(size_t chunk) const {
  const Chunk& one = job_.plan.chunks[chunk];
  const bool with_owner = job_.plan.arrival == Arrival::kFromOwner && one.host == here_;
  return with_owner ? layout_.local(one.owner) : one.rail;
}

/// True if the rank's input stays where it is: a leader adds up without a copy of its own part, and
/// leaves room for the sum.
bool HierarchicalSchedule::keeps_input(size_t chunk) const {
  return job_.plan.arrival == Arrival::kSum && leads(chunk);
}

void HierarchicalSchedule::run(const transport::WaitLimit& limit,
                               const std::function<void()>& look) {
  // A rank that waits for another of its host waits, through it, for the network.
  const transport::WaitLimit local = later(limit, kGrace);
  const auto in_turn = [this](size_t turn, size_t lag) {
    return turn >= lag && turn - lag < cut_.count;
  };
  for (size_t turn = 0; turn < cut_.count + 1 + 2 * kLag; ++turn) {
    if (in_turn(turn, 0)) {
      copy_in(turn);
      round(turn).step = segment_.publish();
    }
    if (in_turn(turn, 1)) {
      segment_.wait_for_all(round(turn - 1).step, local);
      start_arrival(turn - 1);
    }
    if (in_turn(turn, 1 + kLag)) {
      link_.wait(round(turn - 1 - kLag).messages, limit, look);
      round(turn - 1 - kLag).messages.clear();
      start_departure(turn - 1 - kLag);
    }
    if (in_turn(turn, 1 + 2 * kLag)) {
      link_.wait(round(turn - 1 - 2 * kLag).messages, limit, look);
      round(turn - 1 - 2 * kLag).messages.clear();
      segment_.wait_for_all(segment_.publish(), local);
      copy_out(turn - 1 - 2 * kLag);
    }
  }
}

void HierarchicalSchedule::copy_in(size_t number) {
  const ChunkPlan& plan = job_.plan;
  if (plan.arrival == Arrival::kFromRoot && plan.root != layout_.rank) return;
  for (size_t chunk = 0; chunk < plan.chunks.size(); ++chunk) {
    const bool is_others =
        plan.arrival == Arrival::kFromOwner && plan.chunks[chunk].owner != layout_.rank;
    const size_t size = piece_bytes(chunk, number);
    if (is_others || keeps_input(chunk) || size == 0) continue;
    copy(place(me_, chunk, number), job_.inputs[chunk].subspan(number * cut_.piece_bytes, size));
  }
}

void HierarchicalSchedule::post(size_t number, bool sends, int host, uint64_t tag, Bytes bytes) {
  const int peer = layout_.rank_at(host, me_);
  round(number).messages.push_back(sends ? link_.send(peer, tag, bytes)
                                         : link_.receive(peer, tag, bytes));
}

uint64_t HierarchicalSchedule::arrival_tag(size_t chunk, size_t number, int source) const {
  return message_tag({.kind = MessageKind::kArrival,
                      .sequence = job_.sequence,
                      .round = number,
                      .chunk = chunk,
                      .source = source});
}

uint64_t HierarchicalSchedule::departure_tag(size_t chunk, size_t number) const {
  return message_tag({.kind = MessageKind::kDeparture,
                      .sequence = job_.sequence,
                      .round = number,
                      .chunk = chunk,
                      .source = job_.plan.chunks[chunk].host});
}

void HierarchicalSchedule::start_arrival(size_t number) {
  if (!layout_.has_rail() || job_.plan.arrival == Arrival::kFromOwner) return;
  const bool sums = job_.plan.arrival == Arrival::kSum;
  for (const size_t chunk : led_) {
    if (!sums || job_.plan.chunks[chunk].host != here_ || piece_bytes(chunk, number) == 0) continue;
    for (const int host : others_) {
      post(number, false, host, arrival_tag(chunk, number, host),
           incoming_part(chunk, host, number));
    }
  }
  for (const size_t chunk : led_) {
    if (piece_bytes(chunk, number) == 0) continue;
    if (!sums) {
      fetch_from_root(chunk, number);
      continue;
    }
    const int target = job_.plan.chunks[chunk].host;
    add_up_host(chunk, number);
    if (target == here_) continue;
    post(number, true, target, arrival_tag(chunk, number, here_), own_part(chunk, number));
  }
}

void HierarchicalSchedule::add_up_host(size_t chunk, size_t number) {
  const int locals = static_cast<int>(layout_.ranks_on[static_cast<size_t>(here_)].size());
  std::vector<const std::byte*> sources;
  for (int local = 0; local < locals; ++local) {
    sources.push_back(local == me_ ? job_.inputs[chunk].data() + number * cut_.piece_bytes
                                   : place(local, chunk, number).data());
  }
  reduce(job_.reduction.type, job_.reduction.op, sources, own_part(chunk, number).data(),
         piece_bytes(chunk, number) / size_bytes(job_.reduction.type), 1,
         growth_ > 1 ? Stage::kPart : Stage::kWhole);
}

void HierarchicalSchedule::fetch_from_root(size_t chunk, size_t number) {
  const int root_host = layout_.host(job_.plan.root);
  const int target = job_.plan.chunks[chunk].host;
  const Bytes mine = place(me_, chunk, number);
  if (here_ != root_host) {
    if (target == here_) {
      post(number, false, root_host, arrival_tag(chunk, number, root_host), mine);
    }
    return;
  }
  const Bytes theirs = place(layout_.local(job_.plan.root), chunk, number);
  if (target == here_) {
    copy(mine, theirs);
  } else {
    post(number, true, target, arrival_tag(chunk, number, here_), theirs);
  }
}

void HierarchicalSchedule::start_departure(size_t number) {
  if (!layout_.has_rail()) return;
  const ChunkPlan& plan = job_.plan;
  for (const size_t chunk : led_) {
    if (piece_bytes(chunk, number) == 0) continue;
    const int from = plan.chunks[chunk].host;
    const Bytes value = place(value_rank(chunk), chunk, number);
    if (plan.arrival == Arrival::kSum && from == here_) {
      std::vector<const std::byte*> sources;
      for (int host = 0; host < layout_.hosts(); ++host) {
        sources.push_back(host == here_ ? own_part(chunk, number).data()
                                        : incoming_part(chunk, host, number).data());
      }
      reduce(job_.reduction.type, job_.reduction.op, sources, value.data(),
             value.size() / size_bytes(job_.reduction.type), job_.reduction.divisor,
             growth_ > 1 ? Stage::kParts : Stage::kWhole);
    }
    if (plan.departure == Departure::kToOwner) continue;
    const bool to_all = plan.departure == Departure::kToAll;
    const int to = to_all ? -1 : layout_.host(plan.root);
    if (from != here_) {
      if (to_all || to == here_) post(number, false, from, departure_tag(chunk, number), value);
      continue;
    }
    for (const int host : others_) {
      if (to_all || to == host) post(number, true, host, departure_tag(chunk, number), value);
    }
  }
}

/// Does this rank copy the chunk out?
bool HierarchicalSchedule::wants(size_t chunk) const {
  const ChunkPlan& plan = job_.plan;
  if (plan.arrival == Arrival::kFromOwner && plan.chunks[chunk].owner == layout_.rank) return false;
  switch (plan.departure) {
    case Departure::kToAll:
      return plan.arrival != Arrival::kFromRoot || plan.root != layout_.rank;
    case Departure::kToRoot:
      return plan.root == layout_.rank;
    default:
      return plan.chunks[chunk].owner == layout_.rank;
  }
}

void HierarchicalSchedule::copy_out(size_t number) {
  for (size_t chunk = 0; chunk < job_.plan.chunks.size(); ++chunk) {
    const size_t size = piece_bytes(chunk, number);
    if (size == 0 || !wants(chunk)) continue;
    copy(job_.outputs[chunk].subspan(number * cut_.piece_bytes, size),
         place(value_rank(chunk), chunk, number));
  }
}

}  // namespace smp::collectives
