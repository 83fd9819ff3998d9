// SPDX-License-Identifier: Apache-2.0
// One collective's data on its way through hosts and between them, chunk by chunk.
//
// Each chunk takes four steps: every rank copies its part into its buffer; carriers add up or fetch
// what their host has and exchange it (arrival); carriers finish the value and hand it on
// (departure); all copy it out. Different chunks are in different steps at a time, so that the
// network never waits for the memory. Sums are made host by host, each in rank order, then in the
// order of the hosts: one result on every rank and in every run.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "smp_runtime/collectives/group_layout.h"
#include "smp_runtime/collectives/host_exchange.h"
#include "smp_runtime/collectives/share_plan.h"
#include "smp_runtime/transport/fabric_link.h"
#include "smp_runtime/transport/shared_segment.h"

namespace smp::collectives {

/// Used once. All ranks of the group run the same plan.
class ShareWalk {
 public:
  struct Job {
    uint64_t sequence;
    const SharePlan& plan;
    std::span<const ConstBytes> inputs;  ///< by share
    std::span<const Bytes> outputs;      ///< by share
    const Reduction& reduction;
  };

  ShareWalk(const GroupLayout& layout, transport::SharedSegment& segment,
            transport::FabricLink& link, const Job& job);

  /// See HostWire::move.
  void run(const transport::WaitLimit& limit, const std::function<void()>& look);

 private:
  using Handle = transport::FabricLink::Handle;
  struct Chunk {
    uint32_t step = 0;  // when all have copied in
    std::vector<Handle> messages;
  };

  [[nodiscard]] Chunk& chunk(size_t number) { return chunks_[number % chunks_.size()]; }
  [[nodiscard]] size_t piece_bytes(size_t share, size_t number) const;
  [[nodiscard]] Bytes place(int local, size_t share, size_t number) const;
  [[nodiscard]] Bytes incoming_place(size_t share, int host, size_t number) const;
  [[nodiscard]] bool carries(size_t share) const;
  [[nodiscard]] int behind_us(int host) const;
  [[nodiscard]] int holder(size_t share) const;
  [[nodiscard]] bool keeps_input(size_t share) const;

  void copy_in(size_t number);
  void start_arrival(size_t number);
  void add_up_host(size_t share, size_t number);
  void fetch_from_root(size_t share, size_t number);
  void start_departure(size_t number);
  void copy_out(size_t number);
  [[nodiscard]] bool wants(size_t share) const;
  void post(size_t number, bool sends, int host, uint64_t tag, Bytes bytes);
  [[nodiscard]] uint64_t arrival_tag(size_t share, size_t number, int source) const;
  [[nodiscard]] uint64_t departure_tag(size_t share, size_t number) const;

  const GroupLayout& layout_;
  transport::SharedSegment& segment_;
  transport::FabricLink& link_;
  Job job_;
  int me_;                        // local rank
  int here_;                      // host
  std::vector<size_t> incoming_;  // by share that this rank carries: where its places begin
  std::vector<size_t> carried_;   // shares that this rank's lane moves
  std::vector<int> others_;       // the other hosts
  size_t piece_ = 0;
  size_t count_ = 0;
  std::vector<Chunk> chunks_;
};

}  // namespace smp::collectives
