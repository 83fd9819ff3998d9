// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/collectives/communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "smp_runtime/collectives/reduce_kernels.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/transport/host_identity.h"

namespace smp::collectives {
namespace {

constexpr size_t kLine = 64;

void copy(Bytes to, ConstBytes from) {
  if (!from.empty() && to.data() != from.data()) std::memcpy(to.data(), from.data(), from.size());
}

Reduction reduction_of(const CallHeader& call, int ranks) {
  check_reducible(call.type, call.op);
  const bool average = call.op == ReduceOp::kAverage;
  return {.type = call.type, .op = call.op, .divisor = average ? ranks : 1};
}

}  // namespace

transport::BoardShape Communicator::board_shape(int ranks, const Tuning& tuning) {
  // The sizes of an all_to_all must fit a note, a line for each rank a slot.
  const size_t count = static_cast<size_t>(ranks);
  const size_t sizes = count * sizeof(uint64_t);
  return {.ranks = ranks,
          .note_bytes = HostExchange::note_bytes(std::max(tuning.small_bytes, sizes)),
          .slot_bytes = std::max(tuning.slot_bytes, count * kLine)};
}

std::unique_ptr<Communicator> Communicator::connect(transport::KeyValueStore& store, int rank,
                                                    std::vector<int> names, const Tuning& tuning,
                                                    const WaitLimit& limit) {
  const std::string here = transport::host_identity();
  store.set(fmt::format("host/{}", rank), here);
  for (size_t peer = 0; peer < names.size(); ++peer) {
    if (store.get(fmt::format("host/{}", peer), limit) != here) {
      throw ConfigError(
          "smddp: ranks {} and {} are on different hosts; groups over several hosts are not "
          "available yet in this version, use backend \"gloo\" or \"nccl\" for them",
          names[static_cast<size_t>(rank)], names[peer]);
    }
  }

  const transport::BoardShape shape = board_shape(static_cast<int>(names.size()), tuning);
  const size_t size = transport::HostBoard::size_bytes(shape);
  const std::string wanted = fmt::format("{}/{}", shape.note_bytes, shape.slot_bytes);
  std::shared_ptr<transport::SharedSegment> segment;
  if (rank == 0) {
    segment = std::make_shared<transport::SharedSegment>(transport::SharedSegment::create(size));
    store.set("shape", wanted);
    store.set("segment", segment->address());
  } else {
    const std::string address = store.get("segment", limit);
    if (const std::string theirs = store.get("shape", limit); theirs != wanted) {
      throw ConfigError(
          "smddp: rank {} has note and slot sizes {}, rank {} has {}; set the SMDDP_ variables "
          "alike on all ranks",
          names[static_cast<size_t>(rank)], wanted, names.front(), theirs);
    }
    segment =
        std::make_shared<transport::SharedSegment>(transport::SharedSegment::open(address, size));
  }
  auto board = std::make_unique<transport::HostBoard>(segment, shape, rank, std::move(names));
  board->join(limit);
  segment->close_address();
  return std::make_unique<Communicator>(std::move(board));
}

Communicator::Communicator(std::unique_ptr<transport::HostBoard> board)
    : board_(std::move(board)), host_(*board_) {}

bool Communicator::is_small(size_t size_bytes) const { return size_bytes <= host_.payload_bytes(); }

void Communicator::meet(CallHeader& call, Collective collective, ConstBytes payload,
                        const WaitLimit& limit) {
  call.collective = collective;
  call.sequence = sequence_++;
  host_.meet(call, payload, limit);
}

void Communicator::all_reduce(CallHeader call, ConstBytes input, Bytes output,
                              const WaitLimit& limit) {
  const Reduction reduction = reduction_of(call, size());
  if (!is_small(input.size())) {
    meet(call, Collective::kAllReduce, {}, limit);
    host_.all_reduce(input, output, reduction, true, limit);
    return;
  }
  meet(call, Collective::kAllReduce, input, limit);
  std::vector<const std::byte*> sources;
  for (int peer = 0; peer < size(); ++peer) sources.push_back(host_.payload(peer).data());
  collectives::reduce(reduction.type, reduction.op, sources, output.data(), call.elements,
                      reduction.divisor);
}

void Communicator::reduce(CallHeader call, int root, ConstBytes input, Bytes output,
                          const WaitLimit& limit) {
  const Reduction reduction = reduction_of(call, size());
  const bool wants = root == rank();
  call.root = root;
  if (!is_small(input.size())) {
    meet(call, Collective::kReduce, {}, limit);
    host_.all_reduce(input, output, reduction, wants, limit);
    return;
  }
  meet(call, Collective::kReduce, input, limit);
  if (!wants) return;
  std::vector<const std::byte*> sources;
  for (int peer = 0; peer < size(); ++peer) sources.push_back(host_.payload(peer).data());
  collectives::reduce(reduction.type, reduction.op, sources, output.data(), call.elements,
                      reduction.divisor);
}

void Communicator::reduce_scatter(CallHeader call, std::span<const ConstBytes> inputs, Bytes output,
                                  const WaitLimit& limit) {
  const Reduction reduction = reduction_of(call, size());
  std::vector<Bytes> outputs(inputs.size());
  std::vector<int> owners(inputs.size());
  outputs[static_cast<size_t>(rank())] = output;
  std::iota(owners.begin(), owners.end(), 0);
  meet(call, Collective::kReduceScatter, {}, limit);
  host_.reduce_shares(inputs, outputs, owners, reduction, limit);
}

void Communicator::all_gather(CallHeader call, ConstBytes input, std::span<const Bytes> outputs,
                              const WaitLimit& limit) {
  if (is_small(input.size())) {
    meet(call, Collective::kAllGather, input, limit);
    for (int peer = 0; peer < size(); ++peer) {
      copy(outputs[static_cast<size_t>(peer)], host_.payload(peer));
    }
    return;
  }
  meet(call, Collective::kAllGather, {}, limit);
  copy(outputs[static_cast<size_t>(rank())], input);
  std::vector<int> owners(outputs.size());
  std::iota(owners.begin(), owners.end(), 0);
  host_.share_all(outputs, owners, true, limit);
}

void Communicator::broadcast(CallHeader call, int root, Bytes data, const WaitLimit& limit) {
  call.root = root;
  const bool sends = root == rank();
  if (is_small(data.size())) {
    meet(call, Collective::kBroadcast, sends ? ConstBytes(data) : ConstBytes(), limit);
    if (!sends) copy(data, host_.payload(root));
    return;
  }
  meet(call, Collective::kBroadcast, {}, limit);
  const std::vector<int> owners{root};
  const std::vector<Bytes> shares{data};
  host_.share_all(shares, owners, true, limit);
}

void Communicator::all_to_all(CallHeader call, std::span<const ConstBytes> inputs,
                              std::span<const Bytes> outputs, const WaitLimit& limit) {
  std::vector<uint64_t> sizes;
  for (const ConstBytes input : inputs) sizes.push_back(input.size());
  meet(call, Collective::kAllToAll, std::as_bytes(std::span(sizes)), limit);

  size_t longest = 0;
  bool fits = true;
  std::vector<uint64_t> theirs(sizes.size());
  // Every rank looks at all pairs of which it knows both sides, its own: one that does not fit
  // breaks the group for the others too.
  for (int peer = 0; peer < size(); ++peer) {
    std::memcpy(theirs.data(), host_.payload(peer).data(), theirs.size() * sizeof(uint64_t));
    longest = std::max<size_t>(longest, *std::max_element(theirs.begin(), theirs.end()));
    const size_t coming = theirs[static_cast<size_t>(rank())];
    const size_t room = outputs[static_cast<size_t>(peer)].size();
    if (fits && coming != room) {
      fits = false;
      board_->abort(fmt::format(
          "all_to_all: rank {} sends {} bytes to rank {}, which expects {}; do the split sizes of "
          "both agree?",
          name(peer), coming, name(rank()), room));
    }
  }
  // So that no rank moves data that another has no room for.
  host_.barrier(limit);
  board_->throw_if_aborted();
  host_.all_to_all(inputs, outputs, longest, limit);
}

void Communicator::gather(CallHeader call, int root, ConstBytes input,
                          std::span<const Bytes> outputs, const WaitLimit& limit) {
  call.root = root;
  if (is_small(input.size())) {
    meet(call, Collective::kGather, input, limit);
    for (int peer = 0; root == rank() && peer < size(); ++peer) {
      copy(outputs[static_cast<size_t>(peer)], host_.payload(peer));
    }
    return;
  }
  meet(call, Collective::kGather, {}, limit);
  std::vector<ConstBytes> inputs(static_cast<size_t>(size()));
  const std::vector<Bytes> none(inputs.size());
  inputs[static_cast<size_t>(root)] = input;
  host_.all_to_all(inputs, root == rank() ? outputs : std::span(none), input.size(), limit);
}

void Communicator::scatter(CallHeader call, int root, std::span<const ConstBytes> inputs,
                           Bytes output, const WaitLimit& limit) {
  call.root = root;
  meet(call, Collective::kScatter, {}, limit);
  std::vector<Bytes> outputs(static_cast<size_t>(size()));
  const std::vector<ConstBytes> none(outputs.size());
  outputs[static_cast<size_t>(root)] = output;
  host_.all_to_all(root == rank() ? inputs : std::span(none), outputs, output.size(), limit);
}

void Communicator::barrier(const WaitLimit& limit) {
  CallHeader call;
  call.type = ElementType::kBytes;
  meet(call, Collective::kBarrier, {}, limit);
}

void Communicator::abort(std::string_view reason) { board_->abort(reason); }

}  // namespace smp::collectives
