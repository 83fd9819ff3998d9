// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/replica_all_reduce.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/full.h>

namespace smp::sharding {

std::vector<ReplicaChunk> plan_chunks(std::span<const ShardedUnit> units, std::int64_t bucket) {
  std::vector<int> order;
  for (const bool persistent : {false, true}) {
    for (std::size_t number = units.size(); number-- > 0;) {
      const ShardedUnit& unit = units[number];
      if (unit.trained && unit.layout.persistent == persistent) {
        order.push_back(static_cast<int>(number));
      }
    }
  }
  std::vector<ReplicaChunk> chunks;
  for (const int number : order) {
    const ShardedUnit& unit = units[static_cast<std::size_t>(number)];
    const std::int64_t least = bucket / unit.layout.degree;
    if (!chunks.empty() && chunks.back().elements < least && chunks.back().arena == unit.arena) {
      ReplicaChunk& last = chunks.back();
      const bool before = unit.arena_offset + unit.layout.shard == last.offset;
      const bool behind = last.offset + last.elements == unit.arena_offset;
      if (before || behind) {
        if (before) last.offset = unit.arena_offset;
        last.elements += unit.layout.shard;
        last.units.push_back(number);
        continue;
      }
    }
    chunks.push_back({.arena = unit.arena,
                      .offset = unit.arena_offset,
                      .elements = unit.layout.shard,
                      .units = {number}});
  }
  return chunks;
}

ReplicaAllReduce::ReplicaAllReduce(std::vector<ShardedUnit>& units, std::vector<Arena>& arenas,
                                   std::int64_t bucket)
    : units_(units),
      arenas_(arenas),
      chunks_(plan_chunks(units, bucket)),
      chunk_of_(units.size(), chunks_.size()),
      final_(units.size(), false) {
  for (std::size_t index = 0; index < chunks_.size(); ++index) {
    for (const int unit : chunks_[index].units) chunk_of_[static_cast<std::size_t>(unit)] = index;
  }
}

void ReplicaAllReduce::set_final(int unit) {
  final_.at(static_cast<std::size_t>(unit)) = true;
  const auto is_final = [this](int one) { return final_[static_cast<std::size_t>(one)]; };
  while (sums_.size() < chunks_.size() &&
         std::ranges::all_of(chunks_[sums_.size()].units, is_final)) {
    start_next();
  }
}

bool ReplicaAllReduce::started(int unit) const {
  return chunk_of_.at(static_cast<std::size_t>(unit)) < sums_.size();
}

void ReplicaAllReduce::start_next() {
  const ReplicaChunk& chunk = chunks_[sums_.size()];
  for (const int number : chunk.units) {
    ShardedUnit& unit = units_[static_cast<std::size_t>(number)];
    if (std::exchange(unit.fresh, false)) unit.gradient.zero_();
  }
  const Arena& arena = arenas_[chunk.arena];
  sums_.push_back(
      arena.group.exchange->start_sum(arena.gradient.narrow(0, chunk.offset, chunk.elements)));
}

void ReplicaAllReduce::finish() {
  while (sums_.size() < chunks_.size()) start_next();
  for (std::size_t index = 0; index < chunks_.size(); ++index) {
    arenas_[chunks_[index].arena].group.exchange->wait(sums_[index]);
  }
  sums_.clear();
  final_.assign(units_.size(), false);
}

bool ReplicaAllReduce::any(bool mine) {
  const auto widest = std::ranges::max_element(
      arenas_, {}, [](const Arena& arena) { return arena.group.exchange->replicas(); });
  if (widest == arenas_.end() || widest->group.exchange->replicas() == 1) return mine;
  const at::Tensor flag =
      at::full({1}, mine ? 1.0 : 0.0, widest->gradient.options().dtype(at::kFloat));
  ShardExchange::Sum sum = widest->group.exchange->start_sum(flag);
  widest->group.exchange->wait(sum);
  return flag.item<float>() > 0;
}

}  // namespace smp::sharding
