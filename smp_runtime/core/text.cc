// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/text.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace smp {
namespace {

// Edits (insert, delete, replace) that turn one text into the other.
size_t edit_distance(std::string_view left, std::string_view right) {
  std::vector<size_t> row(right.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < left.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < right.size(); ++j) {
      const size_t replaced = diagonal + (left[i] == right[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::vector<std::string_view> near_names(std::string_view name,
                                         std::span<const std::string_view> known) {
  std::vector<std::pair<size_t, std::string_view>> candidates;
  for (const std::string_view candidate : known) {
    const size_t edits = edit_distance(name, candidate);
    const bool part = name.size() >= 3 && candidate.find(name) != std::string_view::npos;
    if (edits <= std::max<size_t>(2, candidate.size() / 3) || part) {
      candidates.emplace_back(edits, candidate);
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string_view> names;
  for (const auto& [edits, candidate] : candidates) {
    if (names.size() < 3) names.push_back(candidate);
  }
  return names;
}

}  // namespace smp
