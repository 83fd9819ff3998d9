// SPDX-License-Identifier: Apache-2.0
// The way of mailboxes between many hosts: in each step a host hands on what it has to a host twice
// as far as in the step before, so that all have everything after as many steps as the logarithm of
// their number. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "smp_runtime/smddp/collectives/intra_node.h"

namespace smp::collectives {

/// Most hosts of which each sends its mailboxes to every other one: of few that takes less time
/// than steps that wait for each other.
inline constexpr int kMostDirect = 16;

struct RelayStep {
  int to = 0;
  int from = 0;
  std::vector<int> handed;  ///< hosts whose messages go to the host `to`
  std::vector<int> taken;   ///< hosts whose messages come from the host `from`, in its order
};

/// The steps of a host, in their order; of none where it is alone.
[[nodiscard]] std::vector<RelayStep> relay_steps(int host, int hosts);

/// Size of a bundle of messages of these sizes.
[[nodiscard]] size_t bundle_bytes(std::span<const size_t> sizes_bytes);

/// Messages one behind the other, each behind its size.
[[nodiscard]] std::vector<std::byte> bundle_of(std::span<const ConstBytes> messages);

/// Copies the messages of a bundle into `rooms`, each of which is cut to what came. Throws
/// HostError for bytes that are no bundle of so many messages, or one that has no room.
void unbundle(ConstBytes bundle, std::span<Bytes* const> rooms);

}  // namespace smp::collectives
