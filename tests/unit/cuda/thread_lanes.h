// SPDX-License-Identifier: Apache-2.0
// Threads of the CPU as the lanes of a kernel: what a GPU's block does, where a sanitizer can see
// it.
#pragma once

#include <barrier>
#include <cstdint>
#include <thread>
#include <vector>

namespace smp::cuda {

class ThreadBlock {
 public:
  explicit ThreadBlock(std::int64_t lanes)
      : lanes_(lanes), barrier_(lanes), parts_(static_cast<std::size_t>(lanes)) {}

  class Lanes {
   public:
    Lanes(ThreadBlock& block, std::int64_t own) : block_(block), own_(own) {}
    [[nodiscard]] std::int64_t first() const { return own_; }
    [[nodiscard]] std::int64_t count() const { return block_.lanes_; }
    template <typename T>
    [[nodiscard]] T sum(T value) const {
      return joined(value, [](double left, double right) { return left + right; });
    }
    template <typename T>
    [[nodiscard]] T largest(T value) const {
      return joined(value, [](double left, double right) {
        return left > right || left != left ? left : right;
      });
    }

   private:
    template <typename T, typename Join>
    [[nodiscard]] T joined(T value, Join join) const {
      block_.parts_[static_cast<std::size_t>(own_)] = static_cast<double>(value);
      block_.barrier_.arrive_and_wait();
      double all = block_.parts_[0];
      for (std::size_t lane = 1; lane < block_.parts_.size(); ++lane) {
        all = join(all, block_.parts_[lane]);
      }
      block_.barrier_.arrive_and_wait();  // all have read
      return static_cast<T>(all);
    }

    ThreadBlock& block_;
    std::int64_t own_;
  };

  /// Calls `body` with the lanes of each thread.
  template <typename Body>
  void run(const Body& body) {
    std::vector<std::thread> threads;
    for (std::int64_t lane = 0; lane < lanes_; ++lane) {
      threads.emplace_back([&, lane] { body(Lanes(*this, lane)); });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::int64_t lanes_;
  std::barrier<> barrier_;
  std::vector<double> parts_;
};

}  // namespace smp::cuda
