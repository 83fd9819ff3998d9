// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/torch_free/unit_layout.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "smp_runtime/core/error.h"

namespace smp::sharding {
namespace {

std::int64_t filled(const UnitLayout& unit) {
  if (unit.parameters.empty()) return 0;
  return unit.parameters.back().offset + unit.parameters.back().elements;
}

void append(UnitLayout& unit, int parameter, const ParameterSize& size) {
  SMP_CHECK(unit.degree == size.degree, "a unit over {} ranks, a parameter over {}", unit.degree,
            size.degree);
  unit.parameters.push_back(
      {.parameter = parameter, .offset = filled(unit), .elements = size.elements});
}

void pad(UnitLayout& unit, std::int64_t alignment) {
  const std::int64_t step = alignment * unit.degree;
  unit.padded = std::max<std::int64_t>(1, (filled(unit) + step - 1) / step) * step;
  unit.shard = unit.padded / unit.degree;
}

/// Longest processing time first (Graham 1969): the largest parameter that has no place goes to the
/// rank that has least.
void place_whole(UnitLayout& unit, std::int64_t alignment) {
  std::vector<PlacedParameter> by_size = unit.parameters;
  std::ranges::stable_sort(by_size, std::greater<>(), &PlacedParameter::elements);
  std::vector<std::vector<PlacedParameter>> of_rank(static_cast<std::size_t>(unit.degree));
  std::vector<std::int64_t> load(of_rank.size());
  for (PlacedParameter& placed : by_size) {
    const auto rank = static_cast<std::size_t>(std::ranges::min_element(load) - load.begin());
    placed.offset = std::exchange(load[rank], load[rank] + placed.elements);
    of_rank[rank].push_back(placed);
  }
  const std::int64_t most = std::max<std::int64_t>(1, std::ranges::max(load));
  unit.shard = (most + alignment - 1) / alignment * alignment;
  unit.padded = unit.shard * unit.degree;
  unit.parameters.clear();
  for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
    for (PlacedParameter& placed : of_rank[rank]) {
      placed.offset += static_cast<std::int64_t>(rank) * unit.shard;
      unit.parameters.push_back(placed);
    }
  }
}

}  // namespace

std::vector<UnitLayout> plan_units(std::span<const ParameterSize> parameters,
                                   const PlanOptions& options) {
  SMP_CHECK(options.alignment >= 1 && options.persistent_unit >= 1,
            "alignment {}, persistent unit {}", options.alignment, options.persistent_unit);
  std::vector<UnitLayout> sharded;
  std::vector<UnitLayout> persistent;
  std::map<std::pair<int, int>, std::size_t> open_sharded;  // by block and kind
  std::map<int, std::size_t> open_persistent;               // by kind
  for (std::size_t index = 0; index < parameters.size(); ++index) {
    const ParameterSize& parameter = parameters[index];
    SMP_CHECK(parameter.degree >= 1, "degree {}", parameter.degree);
    const UnitLayout empty{.parameters = {},
                           .block = parameter.block,
                           .kind = parameter.kind,
                           .degree = parameter.degree};
    if (parameter.elements < options.persistence_threshold) {
      auto found = open_persistent.find(parameter.kind);
      if (found == open_persistent.end() ||
          filled(persistent[found->second]) + parameter.elements > options.persistent_unit) {
        found = open_persistent.insert_or_assign(parameter.kind, persistent.size()).first;
        persistent.push_back(empty);
        persistent.back().persistent = true;
      }
      append(persistent[found->second], static_cast<int>(index), parameter);
      continue;
    }
    const auto [found, is_new] =
        open_sharded.try_emplace({parameter.block, parameter.kind}, sharded.size());
    if (is_new) sharded.push_back(empty);
    append(sharded[found->second], static_cast<int>(index), parameter);
  }
  sharded.insert(sharded.end(), persistent.begin(), persistent.end());
  for (UnitLayout& unit : sharded) {
    if (options.cut) {
      pad(unit, options.alignment);
    } else {
      place_whole(unit, options.alignment);
    }
  }
  return sharded;
}

std::vector<Piece> pieces_of(const UnitLayout& unit, int index) {
  const std::int64_t begin = index * unit.shard;
  const std::int64_t end = begin + unit.shard;
  std::vector<Piece> pieces;
  for (const PlacedParameter& placed : unit.parameters) {
    const std::int64_t from = std::max(begin, placed.offset);
    const std::int64_t to = std::min(end, placed.offset + placed.elements);
    if (from >= to) continue;
    pieces.push_back({.parameter = placed.parameter,
                      .start = from - placed.offset,
                      .elements = to - from,
                      .offset = from - begin});
  }
  return pieces;
}

EvenShare even_share(std::int64_t elements, int degree, int index) {
  const std::int64_t length = (elements + degree - 1) / degree;
  const std::int64_t start = std::min(index * length, elements);
  return {.start = start, .elements = std::min(length, elements - start), .length = length};
}

}  // namespace smp::sharding
