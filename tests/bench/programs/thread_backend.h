// SPDX-License-Identifier: Apache-2.0
// A backend of c10d between ranks that are threads of this process: carries what ObjectExchange
// sends, at no cost that would be counted.
#pragma once

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace smp::bench {

/// Where the ranks of one group leave bytes for each other.
class Board {
 public:
  /// The board of the group with this name; all of its ranks get the same one.
  static std::shared_ptr<Board> of(const std::string& group) {
    static std::mutex mutex;
    static std::map<std::string, std::weak_ptr<Board>> boards;
    const std::lock_guard lock(mutex);
    std::shared_ptr<Board> board = boards[group].lock();
    if (!board) boards[group] = board = std::make_shared<Board>();
    return board;
  }

  void leave(int source, int destination, std::string bytes) {
    const std::lock_guard lock(mutex_);
    left_[{source, destination}].push_back(std::move(bytes));
    changed_.notify_all();
  }

  std::string take(int source, int destination) {
    std::unique_lock lock(mutex_);
    std::deque<std::string>& queue = left_[{source, destination}];
    changed_.wait(lock, [&] { return !queue.empty(); });
    std::string bytes = std::move(queue.front());
    queue.pop_front();
    return bytes;
  }

  /// Blocks until all `size` ranks have called it as often.
  std::shared_ptr<const std::vector<std::string>> gather(int rank, int size, std::string bytes) {
    std::unique_lock lock(mutex_);
    if (!gathered_) gathered_ = std::make_shared<std::vector<std::string>>(size);
    const std::shared_ptr<std::vector<std::string>> mine = gathered_;
    (*mine)[static_cast<std::size_t>(rank)] = std::move(bytes);
    if (++came_ == size) {
      came_ = 0;
      gathered_.reset();
      ++rounds_;
      changed_.notify_all();
    } else {
      changed_.wait(lock, [this, round = rounds_] { return rounds_ != round; });
    }
    return mine;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, std::deque<std::string>> left_;
  std::shared_ptr<std::vector<std::string>> gathered_;
  int came_ = 0;
  int rounds_ = 0;
};

class EndedWork : public c10d::Work {
 public:
  EndedWork() { finish(); }
};

class ThreadBackend : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  ThreadBackend(const std::string& group, int rank, int size)
      : c10d::Backend(rank, size), board_(Board::of(group)) {}

  [[nodiscard]] const std::string getBackendName() const override { return "threads"; }

  WorkPtr send(std::vector<at::Tensor>& tensors, int destination, int /*tag*/) override {
    board_->leave(rank_, destination, bytes_of(tensors.front()));
    return c10::make_intrusive<EndedWork>();
  }

  WorkPtr recv(std::vector<at::Tensor>& tensors, int source, int /*tag*/) override {
    put(board_->take(source, rank_), tensors.front());
    return c10::make_intrusive<EndedWork>();
  }

  WorkPtr allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                    const c10d::AllgatherOptions& /*options*/) override {
    const auto all = board_->gather(rank_, size_, bytes_of(inputs.front()));
    for (std::size_t rank = 0; rank < all->size(); ++rank) {
      put((*all)[rank], outputs.front()[rank]);
    }
    return c10::make_intrusive<EndedWork>();
  }

 private:
  static std::string bytes_of(const at::Tensor& tensor) {
    return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
  }
  static void put(const std::string& bytes, const at::Tensor& tensor) {
    if (!bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  }

  const std::shared_ptr<Board> board_;
};

}  // namespace smp::bench
