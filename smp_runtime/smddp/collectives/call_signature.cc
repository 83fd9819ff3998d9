// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/collectives/call_signature.h"

#include <cstring>
#include <map>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "smp_runtime/smddp/collectives/gpu_route.h"

namespace smp::collectives {
namespace {

constexpr std::array<std::string_view, 9> kNames{"all_reduce", "reduce",    "reduce_scatter",
                                                 "all_gather", "broadcast", "all_to_all",
                                                 "gather",     "scatter",   "barrier"};

}  // namespace

std::string_view name(Collective collective) {
  const auto index = static_cast<size_t>(collective);
  return index < kNames.size() ? kNames[index] : "an unknown collective";
}

bool CallSignature::matches(const CallSignature& other) const {
  return sequence == other.sequence && elements == other.elements &&
         collective == other.collective && type == other.type && type_name == other.type_name &&
         op == other.op && root == other.root && route == other.route;
}

std::string CallSignature::text() const {
  std::string result = fmt::format("{} #{}", name(collective), sequence);
  if (collective == Collective::kBarrier) return result;
  const std::string_view told(type_name.data(), strnlen(type_name.data(), type_name.size()));
  result += fmt::format(" of {}", told.empty() ? name(type) : told);
  if (dims <= kMaxDims) {
    result += fmt::format(" [{}]", fmt::join(std::span(shape).first(dims), ", "));
  } else {
    result += fmt::format(" with {} elements", elements);
  }
  const bool reduces = collective == Collective::kAllReduce || collective == Collective::kReduce ||
                       collective == Collective::kReduceScatter;
  if (reduces) result += fmt::format(", {}", name(op));
  if (root >= 0) result += fmt::format(", root {}", root);
  if (route != 0) result += fmt::format(", by {}", name(static_cast<GpuRoute>(route)));
  return result;
}

std::string describe_mismatch(std::span<const RankedCall> calls) {
  std::map<std::string, std::vector<int>> ranks_of;
  std::vector<int> threaded;
  for (const RankedCall& one : calls) {
    ranks_of[one.call.text()].push_back(one.name);
    if (one.call.several_threads != 0) threaded.push_back(one.name);
  }
  std::vector<std::string> parts;
  for (const auto& [text, ranks] : ranks_of) {
    parts.push_back(fmt::format("rank(s) {} called {}", fmt::join(ranks, ", "), text));
  }
  std::string text =
      fmt::format("the ranks of the group do not make the same call: {}", fmt::join(parts, "; "));
  if (!threaded.empty()) {
    text += fmt::format(
        ". Calls of rank(s) {} came from several threads: threads that use one group need one "
        "order on all ranks; give each a group of its own",
        fmt::join(threaded, ", "));
  }
  return text;
}

}  // namespace smp::collectives
