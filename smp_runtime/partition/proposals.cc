// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/proposals.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "smp_runtime/core/error.h"
#include "smp_runtime/partition/compat_partitioner.h"
#include "smp_runtime/partition/pareto_front.h"
#include "smp_runtime/partition/units.h"

namespace smp::partition {
namespace {

constexpr int kFrontPoints = 12;
constexpr std::int64_t kLargeTable = 200'000;  // units × stages above which the front is coarse

class Proposer {
 public:
  Proposer(const ModuleTree& tree, const Units& units, int partitions, const AutoOptions& options)
      : tree_(tree),
        units_(units),
        partitions_(partitions),
        stages_(std::min(partitions, units.size())),
        options_(options) {
    for (const Unit& unit : units.list) loads_.push_back(unit.load);
  }

  Proposals run() && {
    std::vector<int> as_run(units_.size());
    std::iota(as_run.begin(), as_run.end(), 0);
    const std::vector<int> narrow = narrow_order(tree_, units_);

    propose_in_order(as_run, "");
    if (narrow != as_run) propose_in_order(narrow, " in narrow order");
    if (shape().schedule == schedule::Schedule::kZeroBubble) propose_several_a_device(as_run);
    propose_refined();
    propose_level_by_level();
    return std::move(result_);
  }

 private:
  // The units' amounts along `order`.
  template <typename Amount>
  [[nodiscard]] std::vector<std::int64_t> along(const std::vector<int>& order,
                                                Amount amount) const {
    std::vector<std::int64_t> amounts;
    amounts.reserve(order.size());
    for (const int unit : order) amounts.push_back(units_.list[unit].*amount);
    return amounts;
  }

  void propose_in_order(const std::vector<int>& order, const std::string& suffix) {
    TwoResources resources{.time_ns = along(order, &Unit::time_ns),
                           .cut_ns = cut_bytes(tree_, units_, order),
                           .state_bytes = along(order, &Unit::state_bytes),
                           .kept_bytes = along(order, &Unit::kept_bytes)};
    for (auto& cut : resources.cut_ns) cut = cut * 1000 / options_.step.link.bytes_per_us;
    const std::vector<std::int64_t> loads = along(order, &Unit::load);
    const bool first = suffix.empty();

    std::vector<Limit> memory;
    if (options_.capacity_bytes > 0) {
      memory.push_back(memory_limit(resources, stages_, shape(), options_.capacity_bytes));
    }
    auto by_load = solve_intervals({.weights = loads, .cuts = {}, .limits = memory}, stages_);
    if (!by_load && !first) return;
    if (!by_load) {
      result_.fits = false;
      memory.clear();
      by_load = solve_intervals({.weights = loads, .cuts = {}, .limits = {}}, stages_);
      const auto front = pareto_front(resources, stages_, shape(), 0, 2);
      add("least memory", devices_of(order, front.back().intervals.ends));
    }
    if (first) result_.contiguous_load = by_load->worst;
    if (by_load->worst > load_limit(result_.contiguous_load)) return;
    const std::vector<int> device_of = devices_of(order, by_load->ends);
    add("contiguous by load" + suffix, device_of);
    if (first || by_load->worst < best_load_) {
      best_ = device_of;
      best_load_ = by_load->worst;
    }

    std::vector<Limit> balanced = memory;
    balanced.push_back(
        {.fixed = loads, .kept = {}, .times = {}, .most = load_limit(result_.contiguous_load)});
    const auto by_time = solve_intervals(
        {.weights = resources.time_ns, .cuts = resources.cut_ns, .limits = balanced}, stages_);
    if (by_time) add("contiguous by time" + suffix, devices_of(order, by_time->ends));

    const bool large = std::int64_t{units_.size()} * stages_ > kLargeTable;
    const auto front =
        pareto_front(resources, stages_, shape(), result_.fits ? options_.capacity_bytes : 0,
                     large ? 2 : kFrontPoints);
    if (front.empty()) return;
    const ParetoPoint& point = choose_point(front, resources, options_.memory_weight);
    add("time within memory" + suffix, devices_of(order, point.intervals.ends));
  }

  // Each device has several intervals, so that the first ones of all are short: a device begins
  // its first microbatch, and ends its last one, that much earlier. In a zigzag the last device's
  // end where its next ones begin, and the first device's end where the backward does (Qi et al.
  // 2024, arXiv:2405.15362); a loop keeps less where memory is short.
  void propose_several_a_device(const std::vector<int>& order) {
    for (const int chunks : {2, 4}) {
      const int count = chunks * stages_;
      if (count > units_.size()) return;
      const auto by_load =
          solve_intervals({.weights = along(order, &Unit::load), .cuts = {}, .limits = {}}, count);
      if (!by_load) return;
      const std::vector<int> chunk_of = devices_of(order, by_load->ends);
      for (const bool zigzag : {true, false}) {
        std::vector<int> device_of = chunk_of;
        for (int& device : device_of) {
          const bool back = zigzag && device / stages_ % 2 != 0;
          device = back ? stages_ - 1 - device % stages_ : device % stages_;
        }
        const std::string name = fmt::format("{} of {}", zigzag ? "zigzag" : "loop", chunks);
        add(name, device_of);
        add("refined " + name, refine(loads_, device_of, stages_));
      }
    }
  }

  void propose_refined() { add("refined", refine(loads_, best_, stages_)); }

  void propose_level_by_level() {
    const std::vector<Cost> costs = own_costs(tree_, options_.memory_weight, options_.memory());
    for (const auto& [containers, name] :
         {std::pair{Containers::kDissolve, "level by level"},
          std::pair{Containers::kKeep, "level by level with containers"}}) {
      add_nodes(name, place_level_by_level(tree_, partitions_, costs, containers));
    }
  }

  // By unit, numbered in the order in which execution first meets them.
  [[nodiscard]] std::vector<int> devices_of(const std::vector<int>& order,
                                            const std::vector<int>& ends) const {
    std::vector<int> device_of(order.size());
    int stage = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      if (static_cast<int>(i) == ends[stage]) ++stage;
      device_of[order[i]] = stage;
    }
    return device_of;
  }

  void add(const std::string& method, std::vector<int> device_of_unit) {
    std::vector<int> number(partitions_, -1);
    int used = 0;
    for (int& device : device_of_unit) {
      if (number[device] < 0) number[device] = used++;
      device = number[device];
    }
    std::vector<int> device_of_node(tree_.size());
    for (int node = 0; node < tree_.size(); ++node) {
      device_of_node[node] = device_of_unit[units_.of_node[node]];
    }
    add_nodes(method, std::move(device_of_node));
  }

  void add_nodes(const std::string& method, std::vector<int> device_of_node) {
    const bool known = std::any_of(
        result_.list.begin(), result_.list.end(),
        [&](const Proposal& earlier) { return earlier.device_of_node == device_of_node; });
    if (!known) {
      result_.list.push_back({.method = method, .device_of_node = std::move(device_of_node)});
    }
  }

  [[nodiscard]] const schedule::ScheduleShape& shape() const { return options_.step.shape; }

  const ModuleTree& tree_;
  const Units& units_;
  int partitions_;
  int stages_;
  const AutoOptions& options_;
  std::vector<Cost> loads_;
  std::vector<int> best_;  ///< the lightest so far, by unit
  Cost best_load_ = 0;
  Proposals result_;
};

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

Cost load_limit(Cost contiguous_load) {
  return contiguous_load + contiguous_load / 100 * (kLoadSlackPercent - 100);
}

Proposals make_proposals(const ModuleTree& tree, const Units& units, int partitions,
                         const AutoOptions& options) {
  return Proposer(tree, units, partitions, options).run();
}

Cost load_lower_bound(const std::vector<Cost>& loads, int devices) {
  const Cost total = std::accumulate(loads.begin(), loads.end(), Cost{0});
  const Cost heaviest = loads.empty() ? 0 : *std::max_element(loads.begin(), loads.end());
  return std::max(heaviest, (total + devices - 1) / devices);
}

std::vector<int> refine(const std::vector<Cost>& loads, std::vector<int> device_of, int devices) {
  return LocalSearch(loads, std::move(device_of), devices).run();
}

}  // namespace smp::partition
