// SPDX-License-Identifier: Apache-2.0
// Decides when units are gathered, kept and given up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "smp_runtime/sharding/gathered_memory.h"
#include "smp_runtime/sharding/sharded_unit.h"
#include "smp_runtime/sharding/torch_free/gather_order.h"
#include "smp_runtime/sharding/value_reads.h"

namespace smp::sharding {

/// Leads each unit through SHARDED -> INFLIGHT -> LIVE -> SHARDED (parameter_store.h). What it
/// gathers follows from the calls alone, so that all ranks of the group gather alike. A unit that
/// was given up too early is gathered again, so when it is given up decides on memory and speed,
/// never on values. Not thread-safe.
class UnshardedUnits {
 public:
  struct Options {
    std::int64_t most_unsharded = 0;  ///< [elements] gathered at once, if it can be helped
    bool prefetch = true;
  };

  /// `units` and `reader`, which operators ask for values, must outlive this.
  UnshardedUnits(Options options, std::vector<ShardedUnit>& units, ValueReader& reader);

  /// A unit was filled: its parameters become views of it, or are hidden and its memory given back.
  void adopt(int number);

  /// A forward begins; `training` passes and others have orders of their own.
  void begin_pass(bool training);
  /// Unshards a unit and counts a user.
  void use(int number);
  /// One user less; gives the unit up if nobody needs it.
  void end_use(int number);
  /// Values of a unit are read outside of a call of its module, as in the backward: it stays until
  /// another one is held, whose turn it is then, or until release_held().
  void hold(int number);
  void release_held();
  /// Gives up what was fetched or kept for a need that is not coming.
  void drop_idle();

  /// Throws UserCodeError if a script gave a parameter other memory, or wrote to it, since.
  void check_untouched(const ShardedUnit& unit);
  /// Values of the parameter at `place` of an unsharded unit: a watched view.
  static at::Tensor values(const ShardedUnit& unit, std::size_t place);
  /// From now on the parameters count as they are.
  static void note_versions(ShardedUnit& unit);

  [[nodiscard]] std::int64_t peak_bytes() const { return peak_bytes_; }
  [[nodiscard]] std::int64_t spare_bytes() const { return memory_.spare_bytes(); }
  [[nodiscard]] Prefetched prefetched() const;

 private:
  ShardedUnit& at(int number) { return units_.at(static_cast<std::size_t>(number)); }
  void need(int number);
  void start(int number);
  void arrive(int number);
  void fetch_ahead();
  void give_back_held(std::size_t ahead);
  /// Gives a unit up unless somebody needs it, or will as the need `ahead` of the next one.
  void release(int number, std::size_t ahead = 0);
  void discard(int number);
  static void show(ShardedUnit& unit);
  static void hide(ShardedUnit& unit);

  const Options options_;
  std::vector<ShardedUnit>& units_;
  ValueReader& reader_;
  std::vector<int> held_;
  GatheredMemory memory_;
  std::array<GatherOrder, 2> orders_;
  GatherOrder* order_ = &orders_[0];
  Prefetched prefetched_;
  std::int64_t elements_ = 0;  ///< gathered or under way
  std::int64_t inflight_ = 0;  ///< [elements]
  std::int64_t bytes_ = 0;
  std::int64_t peak_bytes_ = 0;
};

}  // namespace smp::sharding
