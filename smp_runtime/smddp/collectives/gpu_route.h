// SPDX-License-Identifier: Apache-2.0
// By which way tensors of GPUs are added up, for each size: a model of what the ways cost.
//
// Pure: all ranks of a group that know the same come to the same choice, without a message.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace smp::collectives {

enum class GpuRoute {
  kCpu,         ///< to pinned memory, our collective there, and back; users call it "host"
  kNcclInside,  ///< NCCL scatters sums within each host, ours adds them between hosts, NCCL gathers
  kNccl,        ///< NCCL does all of it
};

[[nodiscard]] std::string name(GpuRoute route);

struct GpuGroupShape {
  int hosts = 1;
  int ranks_per_host = 1;  ///< 0: not the same on all hosts
  std::string no_nccl;     ///< why NCCL cannot be used; empty: it can
};

/// Bandwidth of links in one direction [bytes/s], and time to start a step [s]. The defaults are a
/// host of eight GPUs with NVLink, PCIe 4 and 100 Gbit/s; ratios of them decide.
struct GpuRates {
  double inside = 100e9;       ///< NCCL within a host, each GPU
  double copy = 12e9;          ///< between a GPU and pinned memory, each GPU
  double host_sum = 4e9;       ///< our sum in a host's memory, of tensors as long as this
  double network = 10e9;       ///< our exchange, each host
  double nccl_network = 10e9;  ///< NCCL's, each host
  double nccl_start = 30e-6;
  double copy_start = 20e-6;
  double host_start = 30e-6;
  double network_start = 30e-6;
};

/// NCCL reaches other hosts by the fabric only with its plugin; without one it has plain TCP.
[[nodiscard]] GpuRates rates_for(const std::string& our_provider, bool nccl_has_plugin);

/// Predicts the time of an all_reduce of tensors of `size_bytes`. The route must be possible.
[[nodiscard]] double expected_seconds(GpuRoute route, const GpuGroupShape& shape,
                                      const GpuRates& rates, size_t size_bytes);

/// Empty where the route is possible, else why not.
[[nodiscard]] std::string why_not(GpuRoute route, const GpuGroupShape& shape);

/// The cheapest way for each size.
class GpuRoutes {
 public:
  /// All ways that are possible.
  GpuRoutes(const GpuGroupShape& shape, const GpuRates& rates);
  /// One way for all sizes. Throws ConfigError, with the reason, if it is not possible.
  GpuRoutes(const GpuGroupShape& shape, GpuRoute only);

  [[nodiscard]] GpuRoute route(size_t size_bytes) const;
  /// Is it taken for any size?
  [[nodiscard]] bool has(GpuRoute route) const;
  /// E.g. "nccl below 65536 bytes, then host; no nccl-inside: each host has one rank".
  [[nodiscard]] std::string text() const;

 private:
  struct Range {
    size_t from_bytes;
    GpuRoute route;
  };
  std::vector<Range> ranges_;  // ascending, the first from 0
  std::string impossible_;
};

}  // namespace smp::collectives
