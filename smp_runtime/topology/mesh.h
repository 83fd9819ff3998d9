// SPDX-License-Identifier: Apache-2.0
// The grid of ranks over the axes rdp, pp and tp, and the groups along them.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "smp_runtime/topology/parallel_config.h"

namespace smp::topology {

struct Coordinates {
  int rdp = 0;
  int pp = 0;
  int tp = 0;

  bool operator==(const Coordinates&) const = default;
};

/// Kinds of groups; a group's ranks share the coordinates on the right.
enum class Group {
  kWorld,  ///< all ranks
  kMp,     ///< same rdp: one whole copy of the model
  kDp,     ///< same pp: tensor- and reduced-data-parallel directions together
  kPp,     ///< same tp and rdp
  kTp,     ///< same pp and rdp
  kRdp,    ///< same pp and tp
};

inline constexpr std::array kGroups{Group::kWorld, Group::kMp, Group::kDp,
                                    Group::kPp,    Group::kTp, Group::kRdp};

/// "WORLD", "MP", "DP", "PP", "TP" or "RDP".
std::string_view name(Group group);
/// The group of such a name. Throws InternalError for other texts.
Group parse_group(std::string_view text);

/// An immutable grid of rdp × pp × tp ranks. Ranks in every list ascend, and a rank's number within
/// a group is its index in that list.
class Mesh {
 public:
  /// Makes the mesh for the degrees of `config`. Its `placement_strategy` is a permutation of
  /// "DPT", or "cluster" (DPT) or "spread" (TPD); the right-most letter varies fastest with the
  /// global rank. Throws ConfigError for another text, a degree below 1, or degrees that do not
  /// divide.
  static Mesh make(const ParallelConfig& config, int world_size);

  [[nodiscard]] int size() const { return rdp_size_ * pp_size_ * tp_size_; }
  [[nodiscard]] int size(Group group) const;
  [[nodiscard]] bool contains(int rank) const { return rank >= 0 && rank < size(); }

  /// The two below throw InternalError for a rank outside the mesh.
  [[nodiscard]] Coordinates coordinates(int rank) const;
  [[nodiscard]] std::vector<int> group(Group group, int rank) const;

  /// Index of `rank` in its group.
  [[nodiscard]] int rank_in(Group group, int rank) const;

 private:
  Mesh(int rdp_size, int pp_size, int tp_size, std::string_view placement);

  int rdp_size_;
  int pp_size_;
  int tp_size_;
  Coordinates strides_;  ///< distance in global rank between neighbours along each axis
};

}  // namespace smp::topology
