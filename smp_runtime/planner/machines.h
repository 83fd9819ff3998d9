// SPDX-License-Identifier: Apache-2.0
// The machines of a job as the planner sees them: hosts, ranks, speeds of devices and links.
#pragma once

#include <cstdint>
#include <string>

namespace smp::planner {

/// What one rank computes with. Rates are what programs reach, not what data sheets promise.
struct Device {
  std::string name;
  bool is_gpu = false;
  std::int64_t memory_bytes = 0;  ///< that a rank can use; 0: not known
  double flops_32 = 0;            ///< of a matrix product in 32 bits [1/s]
  double flops_16 = 0;            ///< in 16 bits [1/s]; 0: no faster than in 32
  bool has_bfloat16 = false;
  double bytes_per_second = 0;       ///< of its memory
  double host_bytes_per_second = 0;  ///< from and to memory of the host; 0: it is that
  double operation_seconds = 0;      ///< that the interpreter takes to start one operation
};

struct Link {
  double bytes_per_second = 0;
  double latency_seconds = 0;
};

struct Machines {
  int hosts = 1;
  int ranks_a_host = 1;
  /// Processors that the ranks of a host share; 0: each has its device to itself.
  int processors = 0;
  Device device;
  Link inside;         ///< between two ranks of a host
  Link between;        ///< of a host's interface, which its ranks share
  std::string source;  ///< where the speeds are from, for people
  bool is_measured = false;

  [[nodiscard]] int ranks() const { return hosts * ranks_a_host; }
};

/// Throws ConfigError, naming the field, for what is no machine: numbers below 1, speeds of 0.
void check_machines(const Machines& machines);

}  // namespace smp::planner
