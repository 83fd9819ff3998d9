// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/collectives/call_check.h"

#include <cstring>
#include <memory>
#include <vector>

#include "smp_runtime/core/error.h"
#include "smp_runtime/smddp/collectives/inter_node.h"

namespace smp::collectives {

CallCheck::CallCheck(const topology::GroupLayout& layout, transport::SharedSegment& segment,
                     InterNodeCollectives* inter_node, std::span<const int> names,
                     std::optional<MacKey> key)
    : layout_(layout),
      segment_(segment),
      inter_node_(inter_node),
      names_(names.begin(), names.end()),
      messages_(segment.shape().mailbox_bytes, key) {
  SMP_CHECK(segment.shape().mailbox_bytes >= kMailboxHeaderBytes, "mailboxes too small");
}

size_t CallCheck::mailbox_bytes(size_t payload_bytes) {
  return kMailboxHeaderBytes + payload_bytes;
}

size_t CallCheck::payload_bytes() const {
  return segment_.shape().mailbox_bytes - kMailboxHeaderBytes;
}

void CallCheck::agree(const CallSignature& call, ConstBytes payload,
                      const transport::WaitLimit& limit) {
  SMP_CHECK(payload.size() <= payload_bytes(), "a payload of {} bytes", payload.size());
  segment_.throw_if_aborted();  // not all waits look at it
  ++calls_;
  std::byte* mine = segment_.mailbox(layout_.rank, calls_);
  const uint64_t size = payload.size();
  std::memcpy(mine, &call, sizeof(call));
  std::memcpy(mine + sizeof(call), &size, sizeof(size));
  if (!payload.empty()) std::memcpy(mine + kMailboxHeaderBytes, payload.data(), payload.size());
  segment_.wait_for_all(segment_.publish(), limit);
  if (inter_node_ != nullptr) {
    if (segment_.rank() == 0) exchange_mailboxes(limit);
    // The rank that swaps waits for other hosts; it ends first and says which.
    segment_.wait_for(0, segment_.publish(), later(limit, std::chrono::seconds(10)));
  }

  bool agree = true;
  std::vector<RankedCall> calls(names_.size());
  for (size_t rank = 0; rank < names_.size(); ++rank) {
    calls[rank].name = names_[rank];
    std::memcpy(&calls[rank].call, segment_.mailbox(static_cast<int>(rank), calls_),
                sizeof(CallSignature));
    agree = agree && call.matches(calls[rank].call);
  }
  if (!agree) {
    const std::string reason = describe_mismatch(calls);
    segment_.abort(reason);
    throw HostError(reason);
  }
}

ConstBytes CallCheck::payload(int rank, size_t size_bytes) const {
  const std::byte* mailbox = segment_.mailbox(rank, calls_);
  const uint64_t size = payload_size(mailbox);
  if (size != size_bytes) {
    throw HostError("rank {} gave {} bytes to a call where {} were expected",
                    names_[static_cast<size_t>(rank)], size, size_bytes);
  }
  return {mailbox + kMailboxHeaderBytes, size_bytes};
}

void CallCheck::exchange_mailboxes(const transport::WaitLimit& limit) {
  // A wait may end by an exception, and what other hosts send arrives all the same.
  struct Messages {
    std::vector<std::byte> mine;
    std::vector<std::vector<std::byte>> rooms;
  };
  const uint64_t sequence = calls_ - 1;  // numbered as collectives are
  const auto place_of = [&](int host) {
    return MessagePlace{.sequence = sequence, .host = static_cast<uint64_t>(host)};
  };
  std::vector<const std::byte*> here;
  for (const int rank : layout_.ranks_on[static_cast<size_t>(layout_.my_host())]) {
    here.push_back(segment_.mailbox(rank, calls_));
  }
  const auto messages = std::make_shared<Messages>();
  messages->mine = messages_.pack(place_of(layout_.my_host()), here);
  std::vector<Bytes> theirs;
  for (const auto& ranks : layout_.ranks_on) {
    messages->rooms.emplace_back(messages_.longest_bytes(ranks.size()));
    theirs.emplace_back(messages->rooms.back());
  }
  inter_node_->exchange(sequence, messages->mine, theirs, messages, limit);
  for (int host = 0; host < layout_.hosts(); ++host) {
    if (host == layout_.my_host()) continue;
    const std::vector<int>& ranks = layout_.ranks_on[static_cast<size_t>(host)];
    const auto mailboxes =
        messages_.unpack(place_of(host), theirs[static_cast<size_t>(host)], ranks.size());
    for (size_t i = 0; i < ranks.size(); ++i)
      copy(segment_.mailbox(ranks[i], calls_), mailboxes[i]);
  }
}

}  // namespace smp::collectives
