// SPDX-License-Identifier: Apache-2.0
// send and recv between two ranks of a group, of one host or of two, without order among pairs.
//
// Messages go by a link of their own: memory that the ranks share in a group on one host, libfabric
// in a group over several, there between ranks of one host, too, since a receive may be for any
// rank. A pair connects when both have made a call. Any number may be under way. Those with a rank
// that has ended or left the group end with an error at once, but for what it sent before.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <ATen/core/Tensor.h>

#include "smp_runtime/smddp/backend/byte_view.h"
#include "smp_runtime/smddp/backend/pending_work.h"
#include "smp_runtime/transport/key_value_store.h"
#include "smp_runtime/transport/link.h"
#include "smp_runtime/transport/shared_segment.h"

namespace smp::smddp {

/// Safe to call from several threads.
class PointToPoint {
 public:
  using WorkPointer = c10::intrusive_ptr<PendingWork>;
  /// The ranks of the group, as the group knows them.
  struct Group {
    int rank;
    std::vector<int> names;                 ///< by group rank, for messages
    std::function<void()> throw_if_broken;  ///< throws HostError with the reason
    std::function<transport::Presence(int rank)> presence;
  };
  using End = std::function<void(const WorkPointer&, std::exception_ptr)>;

  /// `end` ends a work; it is called in a thread of this object.
  PointToPoint(transport::KeyValueStore& store, std::unique_ptr<transport::Link> link, Group group,
               End end);
  PointToPoint(const PointToPoint&) = delete;
  PointToPoint& operator=(const PointToPoint&) = delete;
  /// Ends calls that are under way with an error.
  ~PointToPoint();

  /// `peer` is a group rank; `tag` fits 32 bits. For tensors of a GPU in a DeviceScope.
  void send(WorkPointer work, const at::Tensor& tensor, int peer, uint32_t tag,
            std::chrono::milliseconds timeout);
  /// From `peer`, or from anybody: -1.
  void receive(WorkPointer work, const at::Tensor& tensor, int peer, uint32_t tag,
               std::chrono::milliseconds timeout);

 private:
  struct Call;

  void add(std::unique_ptr<Call> call);
  void run();
  void advance(std::list<std::unique_ptr<Call>>& calls);
  bool try_start(Call& call);
  bool is_over(Call& call);
  [[nodiscard]] std::string absence(const Call& call) const;
  [[nodiscard]] std::string text(const Call& call) const;

  transport::KeyValueStore& store_;
  Group group_;
  End end_;
  std::unique_ptr<transport::Link> link_;
  int process_;

  std::mutex mutex_;  // guards what follows
  std::list<std::unique_ptr<Call>> added_;
  bool stopping_ = false;

  std::thread thread_;  // last: it starts with the members above in place
};

}  // namespace smp::smddp
