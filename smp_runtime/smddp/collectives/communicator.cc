// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/collectives/communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "smp_runtime/core/error.h"
#include "smp_runtime/smddp/collectives/bootstrap.h"
#include "smp_runtime/smddp/collectives/reduce_kernels.h"

namespace smp::collectives {
namespace {

Reduction reduction_of(const CallSignature& call, int ranks) {
  check_reducible(call.type, call.op);
  const bool average = call.op == ReduceOp::kAverage;
  return {.type = call.type, .op = call.op, .divisor = average ? ranks : 1};
}

/// For data that is moved as it is.
constexpr Reduction kNone{.type = ElementType::kBytes, .op = ReduceOp::kSum};

}  // namespace

Communicator::Communicator(transport::KeyValueStore& store, int rank, std::vector<int> names,
                           const std::string& host, const Tuning& tuning,
                           const transport::Network& network, const WaitLimit& limit,
                           std::function<std::string(int name)> end_of)
    : names_(std::move(names)) {
  transport::Meeting meeting(
      store, {.rank = rank, .names = names_, .host = host, .end_of = std::move(end_of)}, limit);
  key_prefix_ = meeting.prefix();
  layout_ = topology::GroupLayout::from(meeting.hosts(), rank);
  try {
    segment_ = segment_of(meeting, layout_, names_, tuning, limit);
    intra_node_ = std::make_unique<IntraNodeCollectives>(*segment_);
    if (layout_.hosts() > 1) {
      inter_node_ = std::make_unique<InterNodeCollectives>(layout_, *segment_, names_, meeting,
                                                           network, limit);
    }
  } catch (const std::exception& error) {
    meeting.tell(fmt::format("rank {} cannot make the group: {}", name(rank), error.what()));
    throw;
  }
  std::optional<MacKey> key;
  // Rank 0's part of the prefix is new for each group.
  if (const JobSecret* secret = meeting.secret()) key.emplace(*secret, "calls " + key_prefix_);
  check_ = std::make_unique<CallCheck>(layout_, *segment_, inter_node_.get(), names_, key);
}

Communicator::~Communicator() = default;

bool Communicator::is_small(size_t size_bytes) const {
  return size_bytes <= check_->payload_bytes();
}

/// A collective that fails breaks the group: on this host through its segment, and everywhere.
template <typename Body>
void Communicator::guarded(const Body& body) {
  try {
    body();
  } catch (const HostError& error) {
    abort(error.what());
    throw;
  } catch (...) {
    // An error of WaitLimit::look(): the other ranks' parts of this call have no counterpart any
    // more.
    abort(fmt::format("rank {} gave up call #{} of the group; see its output", name(rank()),
                      sequence_ - 1));
    throw;
  }
  if (inter_node_) inter_node_->completed(sequence_);
}

void Communicator::leave(const WaitLimit& limit) {
  if (inter_node_) inter_node_->leave(limit);
}

void Communicator::agree_on(CallSignature& call, Collective collective, ConstBytes payload,
                            const WaitLimit& limit) {
  call.collective = collective;
  call.sequence = sequence_++;
  call.several_threads = several_threads_.load();
  check_->agree(call, payload, limit);
}

/// The sum of all mailboxes' payloads, in rank order.
void Communicator::reduce_mailboxes(const CallSignature& call, const Reduction& reduction,
                                    Bytes output) const {
  std::vector<const std::byte*> sources;
  for (int peer = 0; peer < size(); ++peer)
    sources.push_back(check_->payload(peer, output.size()).data());
  collectives::reduce(reduction.type, reduction.op, sources, output.data(), call.elements,
                      reduction.divisor);
}

/// A whole in chunks, one for each rail: `input` and `output` may be empty where not needed.
void Communicator::run_evenly(const CallSignature& call, Arrival arrival, Departure departure,
                              ConstBytes input, Bytes output, const Reduction& reduction,
                              const WaitLimit& limit) {
  const size_t size = std::max(input.size(), output.size());
  const ChunkPlan plan{.arrival = arrival,
                       .departure = departure,
                       .root = call.root,
                       .chunks = even_chunks(layout_, size, size_bytes(call.type))};
  std::vector<ConstBytes> inputs(plan.chunks.size());
  std::vector<Bytes> outputs(plan.chunks.size());
  for (size_t i = 0; i < plan.chunks.size(); ++i) {
    const Chunk& chunk = plan.chunks[i];
    if (!input.empty()) inputs[i] = input.subspan(chunk.offset_bytes, chunk.size_bytes);
    if (!output.empty()) outputs[i] = output.subspan(chunk.offset_bytes, chunk.size_bytes);
  }
  inter_node_->run(call.sequence, plan, inputs, outputs, reduction, limit);
}

void Communicator::all_reduce(CallSignature call, ConstBytes input, Bytes output,
                              const WaitLimit& limit) {
  const Reduction reduction = reduction_of(call, size());
  guarded([&] {
    const bool small = is_small(input.size());
    agree_on(call, Collective::kAllReduce, small ? input : ConstBytes(), limit);
    if (small) {
      reduce_mailboxes(call, reduction, output);
    } else if (inter_node_) {
      run_evenly(call, Arrival::kSum, Departure::kToAll, input, output, reduction, limit);
    } else {
      intra_node_->all_reduce(input, output, reduction, true, limit);
    }
  });
}

void Communicator::reduce(CallSignature call, int root, ConstBytes input, Bytes output,
                          const WaitLimit& limit) {
  const Reduction reduction = reduction_of(call, size());
  const bool wants = root == rank();
  call.root = root;
  guarded([&] {
    const bool small = is_small(input.size());
    agree_on(call, Collective::kReduce, small ? input : ConstBytes(), limit);
    if (small) {
      if (wants) reduce_mailboxes(call, reduction, output);
    } else if (inter_node_) {
      run_evenly(call, Arrival::kSum, Departure::kToRoot, input, output, reduction, limit);
    } else {
      intra_node_->all_reduce(input, output, reduction, wants, limit);
    }
  });
}

void Communicator::reduce_scatter(CallSignature call, std::span<const ConstBytes> inputs,
                                  Bytes output, const WaitLimit& limit) {
  const Reduction reduction = reduction_of(call, size());
  guarded([&] {
    agree_on(call, Collective::kReduceScatter, {}, limit);
    if (!inter_node_) return intra_node_->reduce_chunks(inputs, output, reduction, limit);
    const ChunkPlan plan{.arrival = Arrival::kSum,
                         .departure = Departure::kToOwner,
                         .chunks = chunk_per_rank(layout_, output.size())};
    std::vector<Bytes> outputs(inputs.size());
    outputs[static_cast<size_t>(rank())] = output;
    inter_node_->run(call.sequence, plan, inputs, outputs, reduction, limit);
  });
}

void Communicator::all_gather(CallSignature call, ConstBytes input, std::span<const Bytes> outputs,
                              const WaitLimit& limit) {
  guarded([&] {
    const bool small = is_small(input.size());
    agree_on(call, Collective::kAllGather, small ? input : ConstBytes(), limit);
    if (small) {
      for (int peer = 0; peer < size(); ++peer) {
        check_->take_payload(peer, outputs[static_cast<size_t>(peer)]);
      }
      return;
    }
    copy(outputs[static_cast<size_t>(rank())], input);
    if (inter_node_) {
      const ChunkPlan plan{.arrival = Arrival::kFromOwner,
                           .departure = Departure::kToAll,
                           .chunks = chunk_per_rank(layout_, input.size())};
      std::vector<ConstBytes> inputs(outputs.size());
      inputs[static_cast<size_t>(rank())] = input;
      inter_node_->run(call.sequence, plan, inputs, outputs, kNone, limit);
      return;
    }
    std::vector<int> owners(outputs.size());
    std::iota(owners.begin(), owners.end(), 0);
    intra_node_->gather_chunks(outputs, owners, true, limit);
  });
}

void Communicator::broadcast(CallSignature call, int root, Bytes data, const WaitLimit& limit) {
  call.root = root;
  const bool sends = root == rank();
  guarded([&] {
    const bool small = is_small(data.size());
    agree_on(call, Collective::kBroadcast, sends && small ? ConstBytes(data) : ConstBytes(), limit);
    if (small) {
      if (!sends) check_->take_payload(root, data);
    } else if (inter_node_) {
      run_evenly(call, Arrival::kFromRoot, Departure::kToAll, data, data, kNone, limit);
    } else {
      const std::vector<int> owners{root};
      const std::vector<Bytes> chunks{data};
      intra_node_->gather_chunks(chunks, owners, true, limit);
    }
  });
}

/// Data of pairs of ranks, sizes known to fit: through the segment within the host, else directly.
void Communicator::swap_pairs(std::span<const ConstBytes> inputs, std::span<const Bytes> outputs,
                              size_t longest, const WaitLimit& limit) {
  const std::vector<int>& locals = layout_.ranks_on[static_cast<size_t>(layout_.my_host())];
  std::vector<ConstBytes> local_inputs;
  std::vector<Bytes> local_outputs;
  for (const int peer : locals) {
    local_inputs.push_back(inputs[static_cast<size_t>(peer)]);
    local_outputs.push_back(outputs[static_cast<size_t>(peer)]);
  }
  intra_node_->all_to_all(local_inputs, local_outputs, longest, limit);
  if (inter_node_) inter_node_->all_to_all(sequence_, inputs, outputs, limit);
}

void Communicator::all_to_all(CallSignature call, std::span<const ConstBytes> inputs,
                              std::span<const Bytes> outputs, const WaitLimit& limit) {
  std::vector<uint64_t> sizes;
  for (const ConstBytes input : inputs) sizes.push_back(input.size());
  guarded([&] {
    agree_on(call, Collective::kAllToAll, std::as_bytes(std::span(sizes)), limit);
    // Everybody looks at all pairs, so that all come to one decision and one reason.
    size_t longest = 0;
    std::vector<uint64_t> theirs(sizes.size());
    for (int peer = 0; peer < size(); ++peer) {
      check_->take_payload(peer, std::as_writable_bytes(std::span(theirs)));
      longest = std::max<size_t>(longest, *std::max_element(theirs.begin(), theirs.end()));
      const size_t coming = theirs[static_cast<size_t>(rank())];
      const size_t room = outputs[static_cast<size_t>(peer)].size();
      if (coming != room) {
        throw HostError(
            "all_to_all: rank {} sends {} bytes to rank {}, which expects {}; do the split sizes "
            "of both agree?",
            name(peer), coming, name(rank()), room);
      }
    }
    // So that no rank moves data that another has no room for.
    CallSignature barrier;
    barrier.type = ElementType::kBytes;
    agree_on(barrier, Collective::kBarrier, {}, limit);
    swap_pairs(inputs, outputs, longest, limit);
    // Pairs cross rails; nobody may leave while a message of one is on its way.
    if (inter_node_) agree_on(barrier, Collective::kBarrier, {}, limit);
  });
}

void Communicator::gather(CallSignature call, int root, ConstBytes input,
                          std::span<const Bytes> outputs, const WaitLimit& limit) {
  call.root = root;
  guarded([&] {
    const bool small = is_small(input.size());
    agree_on(call, Collective::kGather, small ? input : ConstBytes(), limit);
    if (small) {
      for (int peer = 0; root == rank() && peer < size(); ++peer) {
        check_->take_payload(peer, outputs[static_cast<size_t>(peer)]);
      }
      return;
    }
    std::vector<ConstBytes> inputs(static_cast<size_t>(size()));
    const std::vector<Bytes> none(inputs.size());
    const std::span<const Bytes> places = root == rank() ? outputs : std::span(none);
    if (!inter_node_) {
      inputs[static_cast<size_t>(root)] = input;
      return intra_node_->all_to_all(inputs, places, input.size(), limit);
    }
    if (root == rank()) copy(outputs[static_cast<size_t>(root)], input);
    inputs[static_cast<size_t>(rank())] = input;
    const ChunkPlan plan{.arrival = Arrival::kFromOwner,
                         .departure = Departure::kToRoot,
                         .root = root,
                         .chunks = chunk_per_rank(layout_, input.size())};
    inter_node_->run(call.sequence, plan, inputs, places, kNone, limit);
  });
}

void Communicator::scatter(CallSignature call, int root, std::span<const ConstBytes> inputs,
                           Bytes output, const WaitLimit& limit) {
  call.root = root;
  guarded([&] {
    agree_on(call, Collective::kScatter, {}, limit);
    std::vector<Bytes> outputs(static_cast<size_t>(size()));
    const std::vector<ConstBytes> none(outputs.size());
    const std::span<const ConstBytes> parts = root == rank() ? inputs : std::span(none);
    if (!inter_node_) {
      outputs[static_cast<size_t>(root)] = output;
      return intra_node_->all_to_all(parts, outputs, output.size(), limit);
    }
    outputs[static_cast<size_t>(rank())] = output;
    const ChunkPlan plan{.arrival = Arrival::kFromRoot,
                         .departure = Departure::kToOwner,
                         .root = root,
                         .chunks = chunk_per_rank(layout_, output.size())};
    inter_node_->run(call.sequence, plan, parts, outputs, kNone, limit);
  });
}

void Communicator::barrier(const WaitLimit& limit) {
  CallSignature call;
  call.type = ElementType::kBytes;
  agree(call, Collective::kBarrier, limit);
}

void Communicator::agree(CallSignature call, Collective collective, const WaitLimit& limit) {
  guarded([&] { agree_on(call, collective, {}, limit); });
}

std::string Communicator::provider() const {
  return inter_node_ ? inter_node_->provider() : std::string();
}

transport::FabricSettings Communicator::fabric_settings() const {
  SMP_CHECK(inter_node_, "a group on one host has no endpoint");
  return inter_node_->settings();
}

void Communicator::abort(std::string_view reason) {
  segment_->abort(reason);
  if (inter_node_) inter_node_->tell(reason);
}

void Communicator::throw_if_broken() const { segment_->throw_if_aborted(); }

transport::Presence Communicator::presence(int rank) const {
  using transport::Presence;
  if (layout_.host(rank) == layout_.my_host()) return segment_->presence(layout_.local(rank));
  return segment_->has_left(rank) ? Presence::kLeft : Presence::kHere;
}

std::string Communicator::end_of(int rank) const {
  if (layout_.host(rank) == layout_.my_host()) return segment_->end_of(layout_.local(rank));
  if (segment_->has_left(rank)) {
    return fmt::format("rank {} has left, or has ended; see its output", name(rank));
  }
  const std::string failure = inter_node_->failure_of(rank);
  return failure.empty() ? failure : fmt::format("rank {} is gone: {}", name(rank), failure);
}

}  // namespace smp::collectives
