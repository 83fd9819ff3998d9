// SPDX-License-Identifier: Apache-2.0
// NCCL between threads of one process, on memory of the CPU: each end has one order of calls, and a
// call is done when the other end has made its half.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "smp_runtime/transport/nccl/nccl_library.h"

struct ncclComm {
  smp::transport::NcclId id;
  int rank = 0;
  size_t undone = 0;
};

namespace smp::transport {

/// Shared by the libraries of all ranks.
struct FakeNetwork {
  struct Half {
    ncclComm* end;
    NcclOperation operation;
  };
  std::mutex mutex;  // guards what follows
  int next_id = 0;
  std::map<NcclId, int> missing;  ///< ends that have not come
  std::map<NcclId, std::deque<Half>> sends;
  std::map<NcclId, std::deque<Half>> receives;
  std::map<NcclId, std::vector<std::deque<Half>>> parts;  ///< of collectives, by rank
  std::vector<size_t> groups;                             ///< sizes of the groups of calls
  int aborted = 0;
  int destroyed = 0;
  int open = 0;
  std::string failure;  ///< what every state() tells

  size_t launched() {
    const std::lock_guard lock(mutex);
    return groups.size();
  }
  int aborts() {
    const std::lock_guard lock(mutex);
    return aborted;
  }
  void fail(std::string reason) {
    const std::lock_guard lock(mutex);
    failure = std::move(reason);
  }
};

class FakeNccl : public NcclLibrary {
 public:
  explicit FakeNccl(FakeNetwork& network) : network_(network) {}

  NcclId new_id() override {
    const std::lock_guard lock(network_.mutex);
    NcclId id{};
    std::memcpy(id.data(), &++network_.next_id, sizeof(int));
    return id;
  }

  NcclOutcome begin(Handle& made, const NcclId& id, int rank, int size) override {
    const std::lock_guard lock(network_.mutex);
    made = new ncclComm{.id = id, .rank = rank};
    ++network_.open;
    network_.missing.try_emplace(id, size).first->second -= 1;
    network_.parts[id].resize(static_cast<size_t>(size));
    return outcome(*made);
  }

  NcclOutcome launch(Handle end, std::span<const NcclOperation> operations, void*) override {
    const std::lock_guard lock(network_.mutex);
    network_.groups.push_back(operations.size());
    for (const NcclOperation& one : operations) {
      ++end->undone;
      if (one.kind == NcclOperation::Kind::kSend) {
        network_.sends[end->id].push_back({end, one});
      } else if (one.kind == NcclOperation::Kind::kReceive) {
        network_.receives[end->id].push_back({end, one});
      } else {
        network_.parts[end->id][static_cast<size_t>(end->rank)].push_back({end, one});
      }
    }
    match(end->id);
    match_collectives(network_.parts[end->id]);
    return outcome(*end);
  }

  NcclOutcome state(Handle end) override {
    const std::lock_guard lock(network_.mutex);
    return outcome(*end);
  }

  NcclOutcome finalize(Handle end) override { return state(end); }

  void destroy(Handle end) override {
    const std::lock_guard lock(network_.mutex);
    ++network_.destroyed;
    --network_.open;
    delete end;
  }

  void abort(Handle end) override {
    const std::lock_guard lock(network_.mutex);
    ++network_.aborted;
    --network_.open;
    for (auto* halves : {&network_.sends, &network_.receives}) {
      std::erase_if((*halves)[end->id], [&](const auto& half) { return half.end == end; });
    }
    network_.parts[end->id][static_cast<size_t>(end->rank)].clear();
    delete end;
  }

 private:
  void match(const NcclId& id) {
    auto& sends = network_.sends[id];
    auto& receives = network_.receives[id];
    while (!sends.empty() && !receives.empty()) {
      const auto [sender, from] = sends.front();
      const auto [receiver, to] = receives.front();
      // As on a GPU: what does not fit is found out by nobody.
      std::memcpy(to.to, from.from, std::min(from.count, to.count));
      --sender->undone;
      --receiver->undone;
      sends.pop_front();
      receives.pop_front();
    }
  }

  static void match_collectives(std::vector<std::deque<FakeNetwork::Half>>& parts) {
    const auto has_none = [](const auto& queue) { return queue.empty(); };
    while (std::none_of(parts.begin(), parts.end(), has_none)) {
      std::vector<NcclOperation> operations;
      for (auto& queue : parts) {
        operations.push_back(queue.front().operation);
        --queue.front().end->undone;
        queue.pop_front();
      }
      perform(operations);
    }
  }

  /// Sums are of floats; what is moved, of bytes.
  static void perform(const std::vector<NcclOperation>& operations) {
    const size_t ranks = operations.size();
    const NcclOperation& any = operations.front();
    const size_t width = any.type == c10::ScalarType::Float ? sizeof(float) : 1;
    const bool scatters = any.kind == NcclOperation::Kind::kReduceScatter;
    std::vector<char> whole(any.count * width * ranks);
    if (any.kind == NcclOperation::Kind::kAllReduce || scatters) {
      std::vector<float> sum(scatters ? any.count * ranks : any.count, 0);
      for (const NcclOperation& one : operations) {
        const auto* values = static_cast<const float*>(one.from);
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
      }
      if (any.reduction == ReduceOp::kAverage) {
        for (float& value : sum) value /= static_cast<float>(ranks);
      }
      std::memcpy(whole.data(), sum.data(), sum.size() * sizeof(float));
    } else {
      for (size_t rank = 0; rank < ranks; ++rank) {
        std::memcpy(whole.data() + rank * any.count * width, operations[rank].from,
                    any.count * width);
      }
    }
    for (size_t rank = 0; rank < ranks; ++rank) {
      const size_t part = any.count * width;
      const size_t root = any.kind == NcclOperation::Kind::kBroadcast
                              ? static_cast<size_t>(any.peer)
                          : scatters ? rank
                                     : 0;
      const bool gathers = any.kind == NcclOperation::Kind::kAllGather;
      std::memcpy(operations[rank].to, whole.data() + root * part, gathers ? part * ranks : part);
    }
  }

  NcclOutcome outcome(const ncclComm& end) {
    if (!network_.failure.empty()) {
      return {.state = NcclOutcome::State::kFailed, .reason = network_.failure};
    }
    const bool done = network_.missing[end.id] == 0 && end.undone == 0;
    return {.state = done ? NcclOutcome::State::kDone : NcclOutcome::State::kInProgress,
            .reason = {}};
  }

  FakeNetwork& network_;
};

}  // namespace smp::transport
