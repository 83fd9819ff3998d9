// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/compat_partitioner.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <span>
#include <utility>

#include "smp_runtime/core/error.h"

namespace smp::partition {
namespace {

// Devices first, first + 1, … of count.
struct DeviceRange {
  int first = 0;
  int count = 1;
};

class LevelByLevel {
 public:
  LevelByLevel(std::vector<Placement> placements, int devices)
      : placements_(std::move(placements)), load_(devices, 0), device_of_(placements_.size(), 0) {}

  std::vector<int> decide() && {
    offer(0, {.first = 0, .count = static_cast<int>(load_.size())});
    while (!queue_.empty()) {  // breadth first: parents are placed before their children
      const auto [node, run] = queue_.front();
      queue_.pop_front();
      split(run, placements_[node].children, run.first);
    }
    return std::move(device_of_);
  }

 private:
  // Puts `node` on the first device of `run`; its children wait if there is a choice left.
  void offer(int node, DeviceRange run) {
    const Placement& placement = placements_[node];
    const bool splits = run.count > 1 && !placement.children.empty();
    load_[run.first] += splits ? placement.own : placement.subtree;
    device_of_[node] = run.first;
    for (const int rider : placement.riders) settle(rider, run.first);
    if (splits) {
      queue_.emplace_back(node, run);
    } else {
      for (const int child : placement.children) settle(child, run.first);
    }
  }

  // Puts everything that hangs on `node` on one device whose load is accounted for.
  void settle(int node, int device) {
    std::vector<int> open{node};
    while (!open.empty()) {
      const Placement& placement = placements_[open.back()];
      device_of_[open.back()] = device;
      open.pop_back();
      open.insert(open.end(), placement.children.begin(), placement.children.end());
      open.insert(open.end(), placement.riders.begin(), placement.riders.end());
    }
  }

  void split(DeviceRange run, std::span<const int> siblings, int parent_device) {
    const int count = std::min(run.count, static_cast<int>(siblings.size()));
    // The first segment gets the first device and with it what that one carries already.
    const Cost carried = load_[run.first];
    std::vector<Cost> costs;
    for (const int node : siblings) costs.push_back(placements_[node].subtree);
    const std::vector<int> ends = minmax_segments(costs, count, carried);

    std::vector<Cost> totals(count, 0);
    std::vector<int> caps(count, 0);
    totals[0] = carried;
    for (int i = 0, node = 0; i < count; ++i) {
      for (; node < ends[i]; ++node) {
        totals[i] += costs[node];
        caps[i] += placements_[siblings[node]].leaves;
      }
    }
    const std::vector<int> seats = dhondt_seats(totals, caps, run.count);

    // Contiguous runs in segment order, so that neighbours share devices.
    DeviceRange next{.first = run.first, .count = 0};
    for (int i = 0, begin = 0; i < count; begin = ends[i++]) {
      const auto segment = siblings.subspan(begin, ends[i] - begin);
      next = {.first = next.first + next.count, .count = seats[i]};
      if (next.count > 1 && segment.size() > 1) {
        split(next, segment, parent_device);
        continue;
      }
      const DeviceRange given =
          next.count == 0 ? DeviceRange{.first = parent_device, .count = 1} : next;
      for (const int node : segment) offer(node, given);
    }
  }

  std::vector<Placement> placements_;
  std::vector<Cost> load_;      ///< what each device carries so far
  std::vector<int> device_of_;  ///< by node
  std::deque<std::pair<int, DeviceRange>> queue_;
};

__extension__ using Wide = __int128;

// True if a / (sa + 1) > b / (sb + 1), exactly.
bool higher_average(Cost a, int a_seats, Cost b, int b_seats) {
  return Wide{a} * (b_seats + 1) > Wide{b} * (a_seats + 1);
}

}  // namespace

std::vector<int> place_level_by_level(const ModuleTree& tree, int partitions,
                                      const std::vector<Cost>& own_costs, Containers containers) {
  SMP_CHECK(tree.size() > 0 && partitions >= 1, "{} modules for {} partitions", tree.size(),
            partitions);
  LevelByLevel partitioner(make_placement_tree(tree, own_costs, containers), partitions);
  std::vector<int> device_of = std::move(partitioner).decide();
  // A container was placed for the sake of what it holds; nothing of it runs.
  for (int node = 1; node < tree.size(); ++node) {
    if (!tree.module(node).called && tree.module(node).parameters.empty()) {
      device_of[node] = device_of[nearest_called_ancestor(tree, node)];
    }
  }
  return device_of;
}

Assignment assign_compat(const ModuleTree& tree, int partitions, double memory_weight) {
  const std::vector<Cost> costs = own_costs(tree, memory_weight);
  return make_assignment(tree, place_level_by_level(tree, partitions, costs, Containers::kDissolve),
                         partitions);
}

std::vector<int> minmax_segments(std::span<const Cost> costs, int count, Cost first_extra) {
  const int size = static_cast<int>(costs.size());
  SMP_CHECK(count >= 1 && count <= size, "{} segments of {} siblings", count, size);
  std::vector<Cost> prefix(size + 1, 0);
  for (int i = 0; i < size; ++i) prefix[i + 1] = prefix[i] + costs[i];

  // best[k][j]: the costliest of k segments over the first j siblings; cut[k][j]: where the k-th
  // of them starts.
  constexpr Cost kInfinite = std::numeric_limits<Cost>::max();
  std::vector<std::vector<Cost>> best(count + 1, std::vector<Cost>(size + 1, kInfinite));
  std::vector<std::vector<int>> cut(count + 1, std::vector<int>(size + 1, 0));
  for (int j = 1; j <= size; ++j) best[1][j] = first_extra + prefix[j];
  for (int k = 2; k <= count; ++k) {
    for (int j = k; j <= size; ++j) {
      for (int i = k - 1; i < j; ++i) {
        const Cost worst = std::max(best[k - 1][i], prefix[j] - prefix[i]);
        if (worst < best[k][j]) {
          best[k][j] = worst;
          cut[k][j] = i;
        }
      }
    }
  }

  std::vector<int> ends(count);
  int end = size;
  for (int k = count; k >= 1; --k) {
    ends[k - 1] = end;
    end = cut[k][end];
  }
  return ends;
}

std::vector<int> dhondt_seats(std::span<const Cost> costs, std::span<const int> caps, int devices) {
  SMP_CHECK(costs.size() == caps.size(), "{} costs with {} caps", costs.size(), caps.size());
  const int count = static_cast<int>(costs.size());
  std::vector<int> seats(count, 0);
  for (int device = 0; device < devices; ++device) {
    int winner = -1;
    for (int i = 0; i < count; ++i) {
      if (seats[i] >= caps[i]) continue;
      if (winner < 0 || higher_average(costs[i], seats[i], costs[winner], seats[winner])) {
        winner = i;
      }
    }
    if (winner < 0) break;
    ++seats[winner];
  }
  return seats;
}

}  // namespace smp::partition
