// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/interval_partitioner.h"

#include <algorithm>
#include <deque>
#include <numeric>

#include "smp_runtime/core/error.h"

namespace smp::partition {
namespace {

using Prefix = std::vector<std::int64_t>;

Prefix prefix_sums(const std::vector<std::int64_t>& amounts) {
  Prefix sums(amounts.size() + 1, 0);
  std::inclusive_scan(amounts.begin(), amounts.end(), sums.begin() + 1);
  return sums;
}

struct Resource {
  Prefix fixed;
  Prefix kept;  ///< may be empty
  const Limit* limit;

  [[nodiscard]] std::int64_t used(int k, int begin, int end) const {
    const std::int64_t state = fixed[end] - fixed[begin];
    return kept.empty() ? state : state + (kept[end] - kept[begin]) * limit->times[k];
  }
};

class Search {
 public:
  Search(const IntervalProblem& problem, int count)
      : count_(count),
        size_(static_cast<int>(problem.weights.size())),
        weight_(prefix_sums(problem.weights)),
        cuts_(problem.cuts) {
    SMP_CHECK(count >= 1 && count <= size_, "{} intervals of {} units", count, size_);
    cuts_.resize(size_ + 1, 0);
    for (const Limit& limit : problem.limits) {
      const bool plain = limit.kept.empty() || limit.times.empty();
      SMP_CHECK(plain || static_cast<int>(limit.times.size()) >= count, "{} stages for {}",
                limit.times.size(), count);
      resources_.push_back(
          {prefix_sums(limit.fixed), plain ? Prefix{} : prefix_sums(limit.kept), &limit});
    }
    heaviest_ = *std::max_element(problem.weights.begin(), problem.weights.end());
    dearest_cut_ = *std::max_element(cuts_.begin(), cuts_.end());
  }

  /// The least answer that has a solution; none if no answer has.
  std::optional<Cost> least() {
    const Cost total = weight_[size_];
    Cost low = std::max(heaviest_, (total + count_ - 1) / count_);
    // Without limits this always suffices: a greedy cut passes the mean by less than one unit.
    Cost high = low + heaviest_ + 2 * dearest_cut_;
    if (!possible(high)) {
      low = high + 1;
      high = total + 2 * dearest_cut_;
      if (low > high || !possible(high)) return std::nullopt;
    }
    while (low < high) {
      const Cost middle = low + (high - low) / 2;
      if (possible(middle)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  std::optional<Intervals> within(Cost answer) {
    if (!possible(answer)) return std::nullopt;
    Intervals result{.ends = std::vector<int>(count_)};
    int end = size_;
    for (int k = count_; k >= 1; --k) {
      result.ends[k - 1] = end;
      const int begin = most_even_start(k, end, answer);
      result.worst = std::max(result.worst, cost(begin, end));
      end = begin;
    }
    return result;
  }

 private:
  [[nodiscard]] Cost cost(int begin, int end) const {
    return weight_[end] - weight_[begin] + cuts_[begin] + cuts_[end];
  }

  [[nodiscard]] bool fits(int k, int begin, int end) const {
    return std::all_of(resources_.begin(), resources_.end(), [&](const Resource& resource) {
      return resource.used(k - 1, begin, end) <= resource.limit->most;
    });
  }

  // Returns true if the units can be cut into count_ intervals that cost at most `answer`; leaves
  // in reached_[k] the ends that k intervals can have and that lie where the rest may still fit.
  bool possible(Cost answer) {
    reached_.assign(count_ + 1, {});
    reached_[0] = {.first = 0, .ends = {1}};
    for (int k = 1; k <= count_; ++k) {
      if (!extend(k, answer)) return false;
    }
    return true;
  }

  bool extend(int k, Cost answer) {
    const Band& before = reached_[k - 1];
    // The intervals behind end within the answer each, so this one may not end before `first`.
    const auto at_least =
        std::lower_bound(weight_.begin(), weight_.end(), weight_[size_] - (count_ - k) * answer);
    const int first = std::max(static_cast<int>(at_least - weight_.begin()), before.first + 1);
    const int last = k == count_ ? size_ : size_ - (count_ - k);
    Band& here = reached_[k];
    here.first = k == count_ ? size_ : first;
    here.ends.clear();

    // Starts in the window, best (largest weight before less its cut) in front.
    std::deque<int> window;
    int next = before.first;
    int least = before.first;
    bool any = false;
    for (int end = here.first; end <= last; ++end) {
      for (; next < end && next <= before.last(); ++next) {
        if (!before.has(next)) continue;
        while (!window.empty() && start_value(window.back()) <= start_value(next)) {
          window.pop_back();
        }
        window.push_back(next);
      }
      while (least < end && !fits(k, least, end)) ++least;
      while (!window.empty() && window.front() < least) window.pop_front();
      const bool reachable =
          !window.empty() && weight_[end] + cuts_[end] - start_value(window.front()) <= answer;
      here.ends.push_back(reachable);
      any = any || reachable;
      if (weight_[end] - weight_[before.last()] > answer) break;  // too far for every start
      if (least > before.last()) break;
    }
    return any && (k < count_ || here.ends.back());
  }

  [[nodiscard]] Cost start_value(int begin) const { return weight_[begin] - cuts_[begin]; }

  [[nodiscard]] int most_even_start(int k, int end, Cost answer) const {
    const Band& before = reached_[k - 1];
    const Cost even = weight_[end] / k * (k - 1);
    int best = -1;
    for (int begin = std::min(end - 1, before.last()); begin >= before.first; --begin) {
      if (weight_[end] - weight_[begin] > answer) break;
      if (!before.has(begin) || cost(begin, end) > answer || !fits(k, begin, end)) continue;
      if (best < 0 || std::abs(weight_[begin] - even) <= std::abs(weight_[best] - even)) {
        best = begin;
      }
    }
    SMP_CHECK(best >= 0, "interval {} of {} that ends at unit {} has no start", k, count_, end);
    return best;
  }

  // Ends first, first + 1, …
  struct Band {
    int first = 0;
    std::vector<char> ends;

    [[nodiscard]] int last() const { return first + static_cast<int>(ends.size()) - 1; }
    [[nodiscard]] bool has(int end) const {
      return end >= first && end <= last() && ends[end - first] != 0;
    }
  };

  int count_;
  int size_;
  Prefix weight_;
  std::vector<Cost> cuts_;
  std::vector<Resource> resources_;
  Cost heaviest_ = 0;
  Cost dearest_cut_ = 0;
  std::vector<Band> reached_;
};

}  // namespace

std::optional<Intervals> solve_intervals(const IntervalProblem& problem, int count) {
  Search search(problem, count);
  const std::optional<Cost> least = search.least();
  return least ? search.within(*least) : std::nullopt;
}

std::optional<Intervals> intervals_within(const IntervalProblem& problem, int count, Cost answer) {
  return Search(problem, count).within(answer);
}

}  // namespace smp::partition
