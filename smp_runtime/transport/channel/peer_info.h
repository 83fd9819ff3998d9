// SPDX-License-Identifier: Apache-2.0
// What the ranks of a group tell each other of themselves before they connect.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include <ATen/ops/empty.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace smp::transport {

/// Everybody's `mine`, by a c10d group on the CPU; of which there are `count`, by rank. Collective.
template <typename T>
std::vector<T> gather_peer_info(c10d::Backend& group, const T* mine, size_t count,
                                std::chrono::milliseconds timeout) {
  static_assert(std::is_trivially_copyable_v<T>);
  const size_t bytes = count * sizeof(T);
  const auto tensor_of = [&] { return at::empty({static_cast<int64_t>(bytes)}, at::kByte); };
  std::vector<at::Tensor> input{tensor_of()};
  std::memcpy(input[0].data_ptr(), mine, bytes);
  std::vector<std::vector<at::Tensor>> outputs(1);
  for (int rank = 0; rank < group.getSize(); ++rank) outputs[0].push_back(tensor_of());
  c10d::AllgatherOptions options;
  options.timeout = timeout;
  group.allgather(outputs, input, options)->wait();
  std::vector<T> all(count * outputs[0].size());
  for (size_t rank = 0; rank < outputs[0].size(); ++rank) {
    std::memcpy(all.data() + rank * count, outputs[0][rank].data_ptr(), bytes);
  }
  return all;
}

}  // namespace smp::transport
