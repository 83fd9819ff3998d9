// SPDX-License-Identifier: Apache-2.0
// Instance types of SageMaker with GPUs, and what their data sheets say.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "smp_runtime/planner/machines.h"

namespace smp::planner {

/// A card by its data sheet: dense operations, without sparsity.
struct Card {
  std::string_view name;
  double gib = 0;
  double teraflops_32 = 0;  ///< float32, without TF32, which torch does not use unless told to
  double teraflops_16 = 0;  ///< of its matrix units, summed in 32 bits
  double gigabytes_per_second = 0;
  bool has_bfloat16 = true;
};

struct InstanceType {
  std::string_view name;  ///< without the prefix "ml."
  std::string_view card;
  int cards = 1;
  double link_gigabytes_per_second = 0;  ///< between two cards, one way; of PCIe where no NVLink is
  double network_gigabits_per_second = 0;
};

std::span<const Card> cards();
std::span<const InstanceType> instance_types();

/// The machines of `hosts` instances of `type`, with or without "ml.", one rank a card. Throws
/// ConfigError, which names near types, for one that is not in the table.
Machines machines_of(std::string_view type, int hosts);

/// Share of a data sheet's operations that large matrix products reach, and of its bytes that
/// operations on vectors do: what the table's rates are multiplied with.
inline constexpr double kFlopsShare = 0.6;
inline constexpr double kBytesShare = 0.8;
inline constexpr double kLinkShare = 0.75;

}  // namespace smp::planner
