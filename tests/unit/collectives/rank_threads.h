// SPDX-License-Identifier: Apache-2.0
// Ranks of one host as threads over one board.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "smp_runtime/collectives/communicator.h"
#include "smp_runtime/transport/host_board.h"

namespace smp::collectives {

inline transport::WaitLimit a_limit(std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  return transport::WaitLimit::after(timeout, "test");
}

/// Runs `body` as each of `ranks` ranks; returns what each threw, "" for nothing.
inline std::vector<std::string> run_ranks(int ranks, const Tuning& tuning,
                                          const std::function<void(Communicator&)>& body) {
  const transport::BoardShape shape = Communicator::board_shape(ranks, tuning);
  const auto segment = std::make_shared<transport::SharedSegment>(
      transport::SharedSegment::create(transport::HostBoard::size_bytes(shape)));
  std::vector<int> names(static_cast<size_t>(ranks));
  std::iota(names.begin(), names.end(), 0);
  std::vector<std::string> errors(names.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        auto board = std::make_unique<transport::HostBoard>(segment, shape, rank, names);
        board->join(a_limit());
        Communicator communicator(std::move(board));
        body(communicator);
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
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
