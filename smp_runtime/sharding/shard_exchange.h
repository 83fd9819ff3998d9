// SPDX-License-Identifier: Apache-2.0
// Exchanges between the ranks that share one copy of a model's state.
//
// Every collective of the shard group goes with a control header: which call it is, of what kind,
// for which unit. A rank that runs another module than the rest is thus told from the rest at once,
// by name, before wrong bytes are used or anybody waits for ever.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "smp_runtime/session/groups.h"

namespace smp::record {
class Recorder;
}  // namespace smp::record
namespace smp::session {
class DeadlockDetector;
}  // namespace smp::session

namespace smp::sharding {

enum class ExchangeKind : std::int64_t { kGather = 1, kReduce = 2 };

struct ExchangeOptions {
  session::GroupPtr shards;  ///< null for a group of one
  /// The same ranks, on the CPU. Null for a group of one, and where no rank can be elsewhere.
  session::GroupPtr control;
  session::GroupPtr replicas;  ///< ranks with the same shard in other groups; null for none
  /// Three-step gather, where a shard group spans hosts evenly: ranks with the same number on each
  /// host, and the ranks of one host. Both null: one flat gather.
  session::GroupPtr across_hosts;
  session::GroupPtr within_host;
  /// Sees and ends waits that cannot end; may be none.
  std::shared_ptr<session::DeadlockDetector> watch;
  std::shared_ptr<record::Recorder> recorder;  ///< the session's, with its watch; or none
  /// Names a unit in errors.
  std::function<std::string(int unit)> unit_name;
};

/// Collectives of one rank; all ranks of a group start the same ones in the same order. Waits end
/// at the groups' timeout. Not thread-safe.
class ShardExchange {
 public:
  explicit ShardExchange(ExchangeOptions options);
  ShardExchange(const ShardExchange&) = delete;
  ShardExchange& operator=(const ShardExchange&) = delete;

  /// A collective under way. Its tensors are kept alive until wait() returns.
  class Pending {
   public:
    [[nodiscard]] explicit operator bool() const { return static_cast<bool>(work_); }

   private:
    friend class ShardExchange;
    std::vector<int> units_;
    ExchangeKind kind_ = ExchangeKind::kGather;
    std::optional<std::int64_t> turn_;  ///< of the exchange among those of its group, for the watch
    at::Tensor headers_sent_, headers_;
    at::Tensor input_, output_;
    at::ScalarType sum_type_ = at::ScalarType::Undefined;
    at::Tensor staged_;  ///< of a gather in steps: what came across hosts
    c10::intrusive_ptr<c10d::Work> header_work_;
    c10::intrusive_ptr<c10d::Work> work_;
  };

  [[nodiscard]] int degree() const;
  [[nodiscard]] int replicas() const;

  /// `full` [degree * s] becomes all ranks' `shard` [s], in rank order; `shard` may be its part of
  /// `full`.
  Pending start_gather(int unit, const at::Tensor& full, const at::Tensor& shard);

  /// `contributions` is [degree, s], of all `units` (not none) side by side: row i goes to rank i,
  /// which gets the sum [s] of all, added up in `sum_type`. The bytes sent are those of a ring
  /// reduce-scatter, (degree - 1) / degree of the input; gloo's own sends twice that, and a
  /// narrower type would be rounded at each step, so there rows are swapped and added up here.
  Pending start_reduce(std::span<const int> units, const at::Tensor& contributions,
                       at::ScalarType sum_type);

  /// Blocks until `pending` is there: what was gathered, or the sum. Throws UserCodeError, naming
  /// units and ranks, if another rank is at another call, and HostError, naming units and the rank,
  /// if one was lost or did not come in time. So do those that start a collective.
  at::Tensor wait(Pending& pending);

  /// A sum under way. Its tensor is kept alive until wait() returns.
  class Sum {
    friend class ShardExchange;
    std::vector<c10::intrusive_ptr<c10d::Work>> works_;
    std::optional<std::int64_t> turn_;  ///< among the sums of its group, for the watch
    c10::DeviceType device_ = c10::DeviceType::CPU;
  };

  /// Adds up `tensor`, in place, over the replicas, which start the same sums in the same order.
  Sum start_sum(const at::Tensor& tensor);
  /// Blocks until the tensor is the sum. Throws HostError if a replica was lost or is late.
  void wait(Sum& sum);

  struct Traffic {
    std::int64_t gathered_bytes = 0;  ///< sent by this rank, by ring arithmetic
    std::int64_t reduced_bytes = 0;
    std::int64_t replica_bytes = 0;

    Traffic& operator+=(const Traffic& other) {
      gathered_bytes += other.gathered_bytes;
      reduced_bytes += other.reduced_bytes;
      replica_bytes += other.replica_bytes;
      return *this;
    }
  };
  [[nodiscard]] const Traffic& traffic() const { return traffic_; }

 private:
  /// Records that each other rank of the shard group was sent so much.
  void record_sent(std::int64_t bytes) const;
  Pending announce(std::span<const int> units, ExchangeKind kind);
  void check_headers(const Pending& pending) const;
  /// Returns the result of `act`, a part of an exchange over `group`; its errors are those of
  /// translate_c10d_errors(), and name the units of `pending`.
  template <typename Act>
  decltype(auto) named(const Pending& pending, c10d::ProcessGroup& group, Act&& act) const;
  void await(const Pending& pending, c10d::ProcessGroup& group, c10d::Work& work,
             c10::DeviceType device) const;
  /// Blocks until the headers of all ranks are there, and compares them.
  void await_headers(const Pending& pending) const;
  [[nodiscard]] std::string describe(const Pending& pending) const;
  [[nodiscard]] std::string describe(ExchangeKind kind, std::span<const int> units,
                                     std::size_t count) const;

  const ExchangeOptions options_;
  const std::string label_;  ///< of these exchanges, for the watch
  std::int64_t sequence_ = 0;
  Traffic traffic_;
};

}  // namespace smp::sharding
