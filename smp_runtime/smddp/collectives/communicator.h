// SPDX-License-Identifier: Apache-2.0
// The collectives of a group of ranks, on bytes.
//
// Sums are made in rank order, each element at one place, and handed out: every rank and every run
// gets the same bits. In a group over several hosts each host adds its ranks up first, but for sums
// that are small enough to travel with call_check.h.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "smp_runtime/smddp/collectives/call_check.h"
#include "smp_runtime/smddp/collectives/call_signature.h"
#include "smp_runtime/smddp/collectives/inter_node.h"
#include "smp_runtime/smddp/collectives/intra_node.h"
#include "smp_runtime/topology/group_layout.h"
#include "smp_runtime/transport/key_value_store.h"
#include "smp_runtime/transport/shared_segment.h"

namespace smp::collectives {

/// Sizes that trade memory and latency for speed; equal on all ranks of a group.
struct Tuning {
  /// Size of one of the buffers that each rank of a host has for data on its way. Small enough that
  /// the buffers of a host's ranks stay in its caches.
  size_t buffer_bytes = 128 * 1024;
  /// The same in a group over several hosts, where a buffer is cut into the network's messages.
  size_t network_buffer_bytes = 256 * 1024;
  /// Up to here a collective is one step: all data travels in the mailboxes.
  size_t small_bytes = 32 * 1024;
};

/// One rank's end of a group. One collective at a time, called by all ranks in the same order;
/// abort() may be called from any thread meanwhile. All collectives block until this rank's part
/// is done, check that all ranks make the same call, and throw HostError, naming the ranks that
/// are to blame, when they do not, when a rank ends, or when the limit passes. A group that has
/// thrown is broken for good.
///
/// `call` tells type, elements and shape of what one rank contributes; the rest is filled in here.
class Communicator {
 public:
  using WaitLimit = transport::WaitLimit;

  /// Finds the other ranks through the store; collective. `names` are the numbers by which messages
  /// call the ranks, e.g. those in the whole job; `host` tells this rank's host (host_identity()).
  /// `network` is looked at when there are several hosts; `end_of` as in transport::Attendee.
  /// Throws ConfigError or HostError, on all ranks if on one (see transport::Meeting).
  Communicator(transport::KeyValueStore& store, int rank, std::vector<int> names,
               const std::string& host, const Tuning& tuning, const transport::Network& network,
               const WaitLimit& limit, std::function<std::string(int name)> end_of = {});
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator();

  [[nodiscard]] int rank() const { return layout_.rank; }
  [[nodiscard]] int size() const { return layout_.size(); }
  [[nodiscard]] int hosts() const { return layout_.hosts(); }
  [[nodiscard]] int name(int rank) const { return names_[static_cast<size_t>(rank)]; }

  /// Long enough to leave in: a peer answers from a thread that does nothing else.
  static constexpr std::chrono::milliseconds kLeaveLimit{10'000};

  /// Waits until nothing that the others still need is on its way, and says that this rank leaves.
  /// Call it before the end of a group that works; afterwards it takes no calls.
  void leave(const WaitLimit& limit);

  /// `output` may be `input`.
  void all_reduce(CallSignature call, ConstBytes input, Bytes output, const WaitLimit& limit);
  /// Only the root's `output` is written; it may be `input`.
  void reduce(CallSignature call, int root, ConstBytes input, Bytes output, const WaitLimit& limit);
  /// The sum of all ranks' `inputs[r]` goes to rank r; `inputs` have equal sizes.
  void reduce_scatter(CallSignature call, std::span<const ConstBytes> inputs, Bytes output,
                      const WaitLimit& limit);
  /// Rank r's input goes to everybody's `outputs[r]`; equal sizes.
  void all_gather(CallSignature call, ConstBytes input, std::span<const Bytes> outputs,
                  const WaitLimit& limit);
  void broadcast(CallSignature call, int root, Bytes data, const WaitLimit& limit);
  /// `inputs[r]` goes to rank r. Sizes may differ; they are compared. `call.elements` must be 0.
  void all_to_all(CallSignature call, std::span<const ConstBytes> inputs,
                  std::span<const Bytes> outputs, const WaitLimit& limit);
  /// The root's `outputs[r]` gets rank r's input; others give no outputs.
  void gather(CallSignature call, int root, ConstBytes input, std::span<const Bytes> outputs,
              const WaitLimit& limit);
  /// The root's `inputs[r]` goes to rank r; others give no inputs.
  void scatter(CallSignature call, int root, std::span<const ConstBytes> inputs, Bytes output,
               const WaitLimit& limit);
  void barrier(const WaitLimit& limit);
  /// Waits for all, for a collective whose data the caller moves by another way (`call.route`).
  void agree(CallSignature call, Collective collective, const WaitLimit& limit);

  /// Prefix of the group's own keys in the store, so that no other group has them.
  [[nodiscard]] const std::string& key_prefix() const { return key_prefix_; }
  /// libfabric's provider that reaches other hosts; empty in a group on one.
  [[nodiscard]] std::string provider() const;
  /// Settings of this rank's endpoint, in a group over several hosts.
  [[nodiscard]] transport::FabricSettings fabric_settings() const;

  /// For the message of a mismatch: the callers are several threads. For any thread.
  void note_several_threads() { several_threads_.store(1); }

  /// Every rank's pending and later calls throw HostError with this reason.
  void abort(std::string_view reason);
  /// Throws HostError with the reason if the group is broken. For any thread.
  void throw_if_broken() const;
  /// State of a rank, as far as it is known. A group is broken by a rank of another host that ends
  /// without leaving. For any thread.
  [[nodiscard]] transport::Presence presence(int rank) const;
  /// End or leaving of another rank, as far as this one knows, for a message; empty while it is
  /// there. For any thread.
  [[nodiscard]] std::string end_of(int rank) const;

 private:
  template <typename Body>
  void guarded(const Body& body);
  void agree_on(CallSignature& call, Collective collective, ConstBytes payload,
                const WaitLimit& limit);
  void reduce_mailboxes(const CallSignature& call, const Reduction& reduction, Bytes output) const;
  void run_evenly(const CallSignature& call, Arrival arrival, Departure departure, ConstBytes input,
                  Bytes output, const Reduction& reduction, const WaitLimit& limit);
  void swap_pairs(std::span<const ConstBytes> inputs, std::span<const Bytes> outputs,
                  size_t longest, const WaitLimit& limit);
  [[nodiscard]] bool is_small(size_t size_bytes) const;

  std::vector<int> names_;
  std::string key_prefix_;
  topology::GroupLayout layout_;
  std::unique_ptr<transport::SharedSegment> segment_;
  std::unique_ptr<IntraNodeCollectives> intra_node_;
  std::unique_ptr<InterNodeCollectives> inter_node_;  // null in a group on one host
  std::unique_ptr<CallCheck> check_;
  uint64_t sequence_ = 0;
  std::atomic<uint32_t> several_threads_{0};
};

}  // namespace smp::collectives
