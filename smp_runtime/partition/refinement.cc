// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/refinement.h"

#include <algorithm>
#include <numeric>

namespace smp::partition {
namespace {

constexpr std::int64_t kTrials = 8'000'000;  // some 20 ms

class LocalSearch {
 public:
  LocalSearch(const std::vector<Cost>& loads, std::vector<int> device_of, int devices)
      : loads_(loads), device_of_(std::move(device_of)), total_(devices, 0), count_(devices, 0) {
    for (size_t unit = 0; unit < loads_.size(); ++unit) {
      total_[device_of_[unit]] += loads_[unit];
      ++count_[device_of_[unit]];
    }
  }

  std::vector<int> run() {
    const Cost bound = load_lower_bound(loads_, static_cast<int>(total_.size()));
    while (trials_ < kTrials && total_[heaviest()] > bound && step()) {
    }
    return std::move(device_of_);
  }

 private:
  struct Change {
    Cost worst = 0;  ///< of the two devices afterwards
    int unit = -1;
    int other = -1;  ///< unit to swap with, or -1
    int device = 0;  ///< where `unit` goes
  };

  [[nodiscard]] int heaviest() const {
    return static_cast<int>(std::max_element(total_.begin(), total_.end()) - total_.begin());
  }

  bool step() {
    const int from = heaviest();
    Change best{.worst = total_[from]};
    const int size = static_cast<int>(loads_.size());
    for (int unit = 0; unit < size && trials_ < kTrials; ++unit) {
      if (device_of_[unit] != from || loads_[unit] == 0) continue;
      if (count_[from] > 1 && on_boundary(unit)) try_moves(unit, best);
      try_swaps(unit, best);
    }
    if (best.unit < 0) return false;
    place(best.unit, best.device);
    if (best.other >= 0) place(best.other, from);
    return true;
  }

  [[nodiscard]] bool on_boundary(int unit) const {
    const int last = static_cast<int>(loads_.size()) - 1;
    return (unit > 0 && device_of_[unit - 1] != device_of_[unit]) ||
           (unit < last && device_of_[unit + 1] != device_of_[unit]);
  }

  void try_moves(int unit, Change& best) {
    for (int device = 0; device < static_cast<int>(total_.size()); ++device) {
      if (device == device_of_[unit]) continue;
      ++trials_;
      consider({.worst = std::max(total_[device_of_[unit]] - loads_[unit],
                                  total_[device] + loads_[unit]),
                .unit = unit,
                .other = -1,
                .device = device},
               best);
    }
  }

  void try_swaps(int unit, Change& best) {
    for (int other = 0; other < static_cast<int>(loads_.size()); ++other) {
      const int device = device_of_[other];
      const Cost gain = loads_[unit] - loads_[other];
      if (device == device_of_[unit] || gain <= 0) continue;
      ++trials_;
      consider({.worst = std::max(total_[device_of_[unit]] - gain, total_[device] + gain),
                .unit = unit,
                .other = other,
                .device = device},
               best);
    }
  }

  static void consider(const Change& change, Change& best) {
    if (change.worst < best.worst) best = change;
  }

  void place(int unit, int device) {
    total_[device_of_[unit]] -= loads_[unit];
    --count_[device_of_[unit]];
    device_of_[unit] = device;
    total_[device] += loads_[unit];
    ++count_[device];
  }

  const std::vector<Cost>& loads_;
  std::vector<int> device_of_;
  std::vector<Cost> total_;  ///< by device
  std::vector<int> count_;
  std::int64_t trials_ = 0;
};

}  // namespace

Cost load_lower_bound(const std::vector<Cost>& loads, int devices) {
  const Cost total = std::accumulate(loads.begin(), loads.end(), Cost{0});
  const Cost heaviest = loads.empty() ? 0 : *std::max_element(loads.begin(), loads.end());
  return std::max(heaviest, (total + devices - 1) / devices);
}

std::vector<int> refine(const std::vector<Cost>& loads, std::vector<int> device_of, int devices) {
  return LocalSearch(loads, std::move(device_of), devices).run();
}

}  // namespace smp::partition
