// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/planner/search.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/planner/cost_tree.h"

namespace smp::planner {
namespace {

constexpr int kMostHosts = 1024;
constexpr double kAlike = 0.01;          // of speeds: no prediction tells them apart
constexpr std::size_t kTriedToFit = 16;  // candidates of a number of hosts, by their least needs
constexpr std::size_t kChanges = 6;

/// What a candidate sets, sorted, as `key=value`.
std::vector<std::string> choices_of(const ModelProfile& model, const Candidate& candidate) {
  std::vector<std::string> choices;
  for (const topology::Setting& setting : candidate.settings.entries) {
    choices.push_back(fmt::format("{}={}", setting.name, topology::to_text(setting.value)));
  }
  const Recomputation& how = recomputation_of(model, candidate);
  if (candidate.recomputation != 0) choices.push_back("checkpointing=" + how.name);
  std::ranges::sort(choices);
  return choices;
}

/// The choice in which two candidates differ; none if in several.
std::optional<std::string> only_difference(const std::vector<std::string>& mine,
                                           const std::vector<std::string>& other) {
  std::vector<std::string> lost;
  std::vector<std::string> won;
  std::ranges::set_difference(mine, other, std::back_inserter(lost));
  std::ranges::set_difference(other, mine, std::back_inserter(won));
  const auto key = [](const std::string& choice) { return choice.substr(0, choice.find('=')); };
  if (won.size() == 1 && lost.empty()) return won.front();
  if (won.empty() && lost.size() == 1) return "without " + lost.front();
  if (won.size() == 1 && lost.size() == 1 && key(won.front()) == key(lost.front())) {
    return won.front();
  }
  return std::nullopt;
}

bool is_faster(const Ranked& one, const Ranked& other) {
  return one.prediction.samples_per_second() > other.prediction.samples_per_second();
}

class Search {
 public:
  Search(const ModelProfile& model, const Machines& machines, const SearchSpace& space, int count)
      : model_(model),
        machines_(machines),
        space_(space),
        count_(static_cast<std::size_t>(count)),
        candidates_(make_candidates(model, machines, space)) {}

  Plan run() {
    plan_.candidates = static_cast<int>(candidates_.size());
    examine();
    if (plan_.best.empty()) {
      find_hosts();
      return std::move(plan_);
    }
    rank_alike();
    find_changes();
    return std::move(plan_);
  }

 private:
  /// Seconds of a microbatch depend on a few choices alone.
  double most_samples(const Candidate& candidate) {
    const auto& config = candidate.config;
    const auto key = std::tuple(config.microbatches, config.tensor_parallel_degree, config.fp16,
                                config.bf16, candidate.recomputation);
    const auto found = seconds_.find(key);
    const double seconds =
        found != seconds_.end() ? found->second : microbatch_seconds(model_, machines_, candidate);
    seconds_.emplace(key, seconds);
    return most_samples_per_second(model_, machines_, candidate, seconds);
  }

  void examine() {
    const double usable = usable_bytes(machines_);
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t number = 0; number < candidates_.size(); ++number) {
      const Candidate& candidate = candidates_[number];
      if (usable > 0 && least_needs(model_, machines_, candidate) > usable) continue;
      order.emplace_back(most_samples(candidate), number);
    }
    std::ranges::stable_sort(order, std::greater{}, &std::pair<double, std::size_t>::first);
    for (const auto& [most, number] : order) {
      if (plan_.best.size() >= count_ &&
          most * kEstimateSlack <= plan_.best.back().prediction.samples_per_second()) {
        break;
      }
      const Ranked& ranked = examine(number);
      if (!ranked.prediction.fits) continue;
      const auto place = std::ranges::upper_bound(plan_.best, ranked, is_faster);
      plan_.best.insert(place, ranked);
      if (plan_.best.size() > count_) plan_.best.pop_back();
    }
  }

  const Ranked& examine(std::size_t number) {
    if (const auto known = examined_.find(number); known != examined_.end()) {
      return plan_.examined[known->second];
    }
    examined_.emplace(number, plan_.examined.size());
    const Candidate& candidate = candidates_[number];
    return plan_.examined.emplace_back(Ranked{candidate, predict(model_, machines_, candidate)});
  }

  void rank_alike() {
    const double limit = plan_.best.front().prediction.samples_per_second() * (1 - kAlike);
    const auto end = std::ranges::find_if(plan_.best, [&](const Ranked& ranked) {
      return ranked.prediction.samples_per_second() < limit;
    });
    std::stable_sort(plan_.best.begin(), end, [&](const Ranked& one, const Ranked& other) {
      return plainness(one.candidate) < plainness(other.candidate);
    });
  }

  /// Fewer choices first, then groups whose exchanges stay nearer.
  [[nodiscard]] std::pair<std::size_t, std::int64_t> plainness(const Candidate& candidate) const {
    const topology::ParallelConfig& config = candidate.config;
    return {choices_of(model_, candidate).size(), config.pipeline_parallel_degree *
                                                      config.tensor_parallel_degree *
                                                      config.sharded_data_parallel_degree};
  }

  void find_changes() {
    const Ranked first = plan_.best.front();
    const std::vector<std::string> own = choices_of(model_, first.candidate);
    for (std::size_t number = 0; number < candidates_.size(); ++number) {
      const auto choice = only_difference(own, choices_of(model_, candidates_[number]));
      if (!choice) continue;
      const Ranked& other = examine(number);
      plan_.changes.push_back(
          {.choice = *choice,
           .speed = other.prediction.samples_per_second() / first.prediction.samples_per_second(),
           .memory_bytes = other.prediction.memory.total(),
           .fits = other.prediction.fits});
    }
    std::ranges::stable_sort(plan_.changes, std::greater{}, &Change::speed);
    if (plan_.changes.size() > kChanges) plan_.changes.resize(kChanges);
  }

  void find_hosts() {
    for (const Ranked& one : plan_.examined) note_least(one.prediction.memory.total());
    for (const Candidate& one : candidates_) {
      if (plan_.examined.empty()) note_least(least_needs(model_, machines_, one));
    }
    Machines more = machines_;
    SearchSpace small = space_;
    small.least_memory = true;
    for (more.hosts = machines_.hosts; more.hosts <= kMostHosts; ++more.hosts) {
      if (!holds(more, small)) continue;
      plan_.hosts_needed = more.hosts;
      return;
    }
  }

  void note_least(double bytes) {
    if (plan_.least_bytes == 0 || bytes < plan_.least_bytes) plan_.least_bytes = bytes;
  }

  [[nodiscard]] bool holds(const Machines& machines, const SearchSpace& space) const {
    std::vector<std::pair<double, Candidate>> order;
    for (Candidate& candidate : make_candidates(model_, machines, space)) {
      const double least = least_needs(model_, machines, candidate);
      if (least <= usable_bytes(machines)) order.emplace_back(least, std::move(candidate));
    }
    std::ranges::stable_sort(order, {}, &std::pair<double, Candidate>::first);
    if (order.size() > kTriedToFit) order.resize(kTriedToFit);
    return std::ranges::any_of(
        order, [&](const auto& one) { return predict(model_, machines, one.second).fits; });
  }

  const ModelProfile& model_;
  const Machines& machines_;
  const SearchSpace& space_;
  const std::size_t count_;
  const std::vector<Candidate> candidates_;
  std::map<std::tuple<std::int64_t, std::int64_t, bool, bool, int>, double> seconds_;
  std::map<std::size_t, std::size_t> examined_;  ///< by candidate: its place in the plan
  Plan plan_;
};

}  // namespace

Plan plan(const ModelProfile& model, const Machines& machines, const SearchSpace& space,
          int count) {
  check_profile(model);
  check_machines(machines);
  if (count < 1) throw ConfigError("a plan of {} candidates; expected at least 1", count);
  return Search(model, machines, space, count).run();
}

}  // namespace smp::planner
