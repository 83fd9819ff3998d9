// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/collectives/gpu_route.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "smp_runtime/core/error.h"

namespace smp::collectives {
namespace {

constexpr std::array kAll{GpuRoute::kCpu, GpuRoute::kNcclInside, GpuRoute::kNccl};
/// Choices are made for powers of two in between: 4 KiB to 4 GiB.
constexpr int kSmallest = 12;
constexpr int kLargest = 32;

/// Share of a whole that each of `count` sends in a scatter or gather among them.
double part(int count) { return count > 1 ? (count - 1.0) / count : 0.0; }

}  // namespace

std::string name(GpuRoute route) {
  switch (route) {
    case GpuRoute::kCpu:
      return "host";
    case GpuRoute::kNcclInside:
      return "nccl-inside";
    case GpuRoute::kNccl:
      break;
  }
  return "nccl";
}

GpuRates rates_for(const std::string& our_provider, bool nccl_has_plugin) {
  GpuRates rates;
  if (our_provider == "efa" && !nccl_has_plugin) rates.nccl_network = rates.network / 5;
  return rates;
}

double expected_seconds(GpuRoute route, const GpuGroupShape& shape, const GpuRates& rates,
                        size_t size_bytes) {
  const auto bytes = static_cast<double>(size_bytes);
  const double between = 2 * bytes * part(shape.hosts);  // of a host, each way
  const double inside = 2 * bytes * part(shape.ranks_per_host == 0 ? 2 : shape.ranks_per_host);
  const double turns = shape.hosts > 1 ? rates.network_start : 0;
  switch (route) {
    case GpuRoute::kCpu:
      return 2 * rates.copy_start + 2 * bytes / rates.copy + rates.host_start +
             bytes / rates.host_sum + turns + between / rates.network;
    case GpuRoute::kNcclInside:
      return 2 * (rates.nccl_start + rates.copy_start) + inside / rates.inside +
             2 * bytes / shape.ranks_per_host / rates.copy + rates.host_start + turns +
             between / rates.network;
    case GpuRoute::kNccl:
      break;
  }
  // A ring passes every host; trees are quicker for small sizes, so count the depth of one. Within
  // a host its steps cost little beside the launch of the kernel.
  const double depth = std::ceil(std::log2(std::max(shape.hosts, 2)));
  return rates.nccl_start + inside / rates.inside + turns * depth + between / rates.nccl_network;
}

std::string why_not(GpuRoute route, const GpuGroupShape& shape) {
  if (route == GpuRoute::kCpu) return {};
  if (!shape.no_nccl.empty()) return shape.no_nccl;
  if (route == GpuRoute::kNccl) return {};
  if (shape.hosts == 1) return "all ranks are on one host";
  if (shape.ranks_per_host == 0) return "hosts have different numbers of ranks";
  if (shape.ranks_per_host == 1) return "each host has one rank";
  return {};
}

GpuRoutes::GpuRoutes(const GpuGroupShape& shape, const GpuRates& rates) {
  for (int power = kSmallest; power <= kLargest; ++power) {
    const size_t bytes = size_t{1} << power;
    GpuRoute best = GpuRoute::kCpu;
    for (const GpuRoute route : kAll) {
      if (!why_not(route, shape).empty()) continue;
      const double seconds = expected_seconds(route, shape, rates, bytes);
      if (seconds < expected_seconds(best, shape, rates, bytes)) best = route;
    }
    if (ranges_.empty()) {
      ranges_.push_back({.from_bytes = 0, .route = best});
    } else if (ranges_.back().route != best) {
      ranges_.push_back({.from_bytes = bytes, .route = best});
    }
  }
  for (const GpuRoute route : kAll) {
    const std::string reason = why_not(route, shape);
    if (!reason.empty())
      impossible_ += fmt::format("; no {}: {}", collectives::name(route), reason);
  }
}

GpuRoutes::GpuRoutes(const GpuGroupShape& shape, GpuRoute only) {
  const std::string reason = why_not(only, shape);
  if (!reason.empty()) {
    throw ConfigError("SMDDP_GPU_ROUTE={} is not possible in this group: {}",
                      collectives::name(only), reason);
  }
  ranges_.push_back({.from_bytes = 0, .route = only});
}

GpuRoute GpuRoutes::route(size_t size_bytes) const {
  GpuRoute found = ranges_.front().route;
  for (const Range& range : ranges_) {
    if (size_bytes >= range.from_bytes) found = range.route;
  }
  return found;
}

bool GpuRoutes::has(GpuRoute route) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [&](const Range& range) { return range.route == route; });
}

std::string GpuRoutes::text() const {
  std::string text = collectives::name(ranges_.front().route);
  for (size_t i = 1; i < ranges_.size(); ++i) {
    text += fmt::format(" below {} bytes, then {}", ranges_[i].from_bytes,
                        collectives::name(ranges_[i].route));
  }
  return text + impossible_;
}

}  // namespace smp::collectives
