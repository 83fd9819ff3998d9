// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/segments.h"

#include <algorithm>
#include <limits>

#include "smp_runtime/core/error.h"

namespace smp::partition {
namespace {

__extension__ using Wide = __int128;

// True if a / (sa + 1) > b / (sb + 1), exactly.
bool higher_average(Cost a, int a_seats, Cost b, int b_seats) {
  return Wide{a} * (b_seats + 1) > Wide{b} * (a_seats + 1);
}

}  // namespace

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
