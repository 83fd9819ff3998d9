// SPDX-License-Identifier: Apache-2.0
// Ranks as threads: of one host, or of several that differ in nothing but their names.
#pragma once

#include <cmath>
#include <exception>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "smp_runtime/core/error.h"
#include "smp_runtime/smddp/collectives/communicator.h"
#include "tests/unit/transport/store_of_threads.h"

namespace smp::collectives {

inline transport::WaitLimit a_limit(std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  return transport::WaitLimit::after(timeout, "test");
}

inline CallSignature call_of(size_t elements, ElementType type = ElementType::kFloat32) {
  CallSignature call;
  call.elements = elements;
  call.type = type;
  call.dims = 1;
  call.shape[0] = static_cast<int64_t>(elements);
  return call;
}

/// Values whose sums depend on their order.
inline std::vector<float> values_of(int rank, size_t count) {
  std::mt19937 random(static_cast<uint32_t>(rank) + 1);
  std::vector<float> values(count);
  for (float& value : values) {
    value = std::ldexp(static_cast<float>(random() % 2001) - 1000, static_cast<int>(random() % 20));
  }
  return values;
}

/// Runs `body` as one rank for each entry of `hosts`, which names its host. Messages between hosts
/// go by a provider of libfabric within this machine. Returns what each threw, "" for nothing.
inline std::vector<std::string> run_hosts(const std::vector<std::string>& hosts,
                                          const Tuning& tuning,
                                          const std::function<void(Communicator&)>& body,
                                          const std::string& provider = "tcp") {
  transport::StoreOfThreads store(JobSecret::draw());
  std::vector<int> names(hosts.size());
  std::iota(names.begin(), names.end(), 0);
  std::vector<std::string> errors(names.size());
  std::vector<std::thread> threads;
  for (const int rank : names) {
    threads.emplace_back([&, rank] {
      const auto place = static_cast<size_t>(rank);
      try {
        const transport::Network network{.fabric = {.provider = provider}, .interface = "lo"};
        Communicator communicator(store, rank, names, hosts[place], tuning, network, a_limit());
        body(communicator);
        communicator.leave(a_limit());
      } catch (const std::exception& error) {
        errors[place] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline std::vector<std::string> run_ranks(int ranks, const Tuning& tuning,
                                          const std::function<void(Communicator&)>& body) {
  return run_hosts(std::vector<std::string>(static_cast<size_t>(ranks), "one"), tuning, body);
}

template <typename T>
ConstBytes bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

template <typename T>
Bytes bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

}  // namespace smp::collectives
