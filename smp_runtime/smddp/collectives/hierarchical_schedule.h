// SPDX-License-Identifier: Apache-2.0
// Hierarchical schedule of one collective: its data within hosts and between them, in rounds.
//
// Each round takes four steps: every rank copies its part into its buffer; leaders add up or fetch
// what their host has and exchange it (arrival); leaders finish the value and hand it on
// (departure); all copy it out. Different rounds are in different steps at a time, so that the
// network never waits for the memory. Sums are made host by host, each in rank order, then in the
// order of the hosts: one result on every rank and in every run.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "smp_runtime/smddp/collectives/chunk_plan.h"
#include "smp_runtime/smddp/collectives/intra_node.h"
#include "smp_runtime/smddp/collectives/schedule_rounds.h"
#include "smp_runtime/topology/group_layout.h"
#include "smp_runtime/transport/fabric/fabric_link.h"
#include "smp_runtime/transport/shared_segment.h"

namespace smp::collectives {

/// Runs once. All ranks of the group run the same plan.
class HierarchicalSchedule {
 public:
  struct Job {
    uint64_t sequence;
    const ChunkPlan& plan;
    std::span<const ConstBytes> inputs;  ///< by chunk
    std::span<const Bytes> outputs;      ///< by chunk
    const Reduction& reduction;
  };

  HierarchicalSchedule(const topology::GroupLayout& layout, transport::SharedSegment& segment,
                       transport::FabricLink& link, const Job& job);

  /// See InterNodeCollectives::run.
  void run(const transport::WaitLimit& limit, const std::function<void()>& look);

 private:
  using Handle = transport::FabricLink::Handle;
  struct Round {
    uint32_t step = 0;  // when all have copied in
    std::vector<Handle> messages;
  };

  [[nodiscard]] Round& round(size_t number) { return rounds_[number % rounds_.size()]; }
  [[nodiscard]] size_t piece_bytes(size_t chunk, size_t number) const;
  [[nodiscard]] Bytes place(int local, size_t chunk, size_t number) const;
  [[nodiscard]] Bytes own_part(size_t chunk, size_t number) const;
  [[nodiscard]] Bytes incoming_part(size_t chunk, int host, size_t number) const;
  [[nodiscard]] bool leads(size_t chunk) const;
  [[nodiscard]] int behind_us(int host) const;
  [[nodiscard]] int value_rank(size_t chunk) const;
  [[nodiscard]] bool keeps_input(size_t chunk) const;

  void copy_in(size_t number);
  void start_arrival(size_t number);
  void add_up_host(size_t chunk, size_t number);
  void fetch_from_root(size_t chunk, size_t number);
  void start_departure(size_t number);
  void copy_out(size_t number);
  [[nodiscard]] bool wants(size_t chunk) const;
  void post(size_t number, bool sends, int host, uint64_t tag, Bytes bytes);
  [[nodiscard]] uint64_t arrival_tag(size_t chunk, size_t number, int source) const;
  [[nodiscard]] uint64_t departure_tag(size_t chunk, size_t number) const;

  const topology::GroupLayout& layout_;
  transport::SharedSegment& segment_;
  transport::FabricLink& link_;
  Job job_;
  int me_;             // local rank
  int here_;           // host
  size_t growth_ = 1;  // of what a host adds up, before it is divided
  ScheduleRounds cut_;
  std::vector<int> others_;  // the other hosts
  std::vector<size_t> led_;  // chunks that this rank's rail moves
  std::vector<Round> rounds_;
};

}  // namespace smp::collectives
