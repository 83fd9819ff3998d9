// SPDX-License-Identifier: Apache-2.0
// Counts of the system calls by which ranks that are threads of this process reach each other. The
// program's own send(), recv(), connect(), getaddrinfo() and getnameinfo() take the place of libc's
// in every library that it loads, so that c10d's clients are counted as they are.
#pragma once

#include <cstdint>

namespace smp::bench {

/// Of the whole process, since it began or between two times.
struct Counts {
  std::int64_t requests = 0;  ///< calls of send(): one a request of a TCPStore's client
  std::int64_t bytes = 0;     ///< sent and received by clients
  std::int64_t connections = 0;
  std::int64_t lookups = 0;    ///< of host names, and of names of addresses
  double processor_s = 0;      ///< seconds of all threads
  std::int64_t memory_kb = 0;  ///< resident, at the time
  std::int64_t threads = 0;    ///< at the time
  double time_s = 0;           ///< on a clock that only runs forwards

  [[nodiscard]] static Counts now();
};

}  // namespace smp::bench
