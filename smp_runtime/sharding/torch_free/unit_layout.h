// SPDX-License-Identifier: Apache-2.0
// Layout of parameters in the flat buffers that a group of ranks shares.
//
// A unit is what is gathered at once: parameters of one block of the model and of one kind, laid
// end to end and padded, so that every rank of the group owns an equal, aligned range. Where
// parameters end means nothing to the cut: shards are balanced by element (ZeRO, arXiv:1910.02054,
// and MiCS, arXiv:2205.00119, shard likewise). Or else each parameter lies within one rank's range,
// for optimizers that look at whole ones, and ranges are balanced as well as that allows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace smp::sharding {

/// One parameter, as far as the plan is concerned.
struct ParameterSize {
  std::int64_t elements = 0;
  int block = 0;  ///< the part of the model it belongs to
  /// Parameters of one unit are of one kind: type, whether they are trained, who holds them.
  int kind = 0;
  int degree = 1;  ///< ranks that share it; the same for all of a kind
};

struct PlanOptions {
  std::int64_t alignment = 1;  ///< elements; every shard is a multiple of it
  /// Parameters with fewer elements stay whole on all ranks: they go to units of their own.
  std::int64_t persistence_threshold = 0;
  std::int64_t persistent_unit = 0;  ///< elements after which a persistent unit is full; >= 1
  bool cut = true;                   ///< whether a parameter may lie in several ranks' shards
};

struct PlacedParameter {
  int parameter = 0;        ///< index in the list that was planned
  std::int64_t offset = 0;  ///< [elements] from the start of the unit
  std::int64_t elements = 0;

  bool operator==(const PlacedParameter&) const = default;
};

struct UnitLayout {
  std::vector<PlacedParameter> parameters;  ///< by offset
  int block = 0;  ///< of the first parameter; all of them unless persistent
  int kind = 0;
  int degree = 1;  ///< ranks that share it
  bool persistent = false;
  std::int64_t shard = 0;   ///< [elements] of each rank: rank i owns [i * shard, (i + 1) * shard)
  std::int64_t padded = 0;  ///< [elements] degree * shard

  bool operator==(const UnitLayout&) const = default;
};

/// Units in the order of their first parameter, persistent ones last. Every parameter is in exactly
/// one. Deterministic: equal input gives equal units on every rank.
/// Throws InternalError for a degree, an alignment or a persistent unit below 1, and for a kind of
/// two degrees.
std::vector<UnitLayout> plan_units(std::span<const ParameterSize> parameters,
                                   const PlanOptions& options);

/// A run of elements of one parameter that lies in one rank's shard.
struct Piece {
  int parameter = 0;
  std::int64_t start = 0;  ///< first element within the parameter
  std::int64_t elements = 0;
  std::int64_t offset = 0;  ///< first element within the shard

  bool operator==(const Piece&) const = default;
};

/// Pieces of `unit` that rank `index` of the group owns, in order.
std::vector<Piece> pieces_of(const UnitLayout& unit, int index);

/// One rank's share of a parameter that is divided by itself: every rank has equally many elements,
/// the last ones padding. Files of sharded checkpoints are laid out so.
struct EvenShare {
  std::int64_t start = 0;     ///< first element within the parameter
  std::int64_t elements = 0;  ///< that are there; 0 behind the parameter's end
  std::int64_t length = 0;    ///< with padding; the same on all ranks

  bool operator==(const EvenShare&) const = default;
};

/// Share of rank `index` of `degree` in a parameter of `elements`.
EvenShare even_share(std::int64_t elements, int degree, int index);

}  // namespace smp::sharding
