// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/collectives/call_check.h"

#include <cstring>
#include <memory>
#include <vector>

#include "smp_runtime/core/cache_line.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/smddp/collectives/inter_node.h"

namespace smp::collectives {
namespace {

// The header and the payload's size, padded to a line so that payloads are aligned.
constexpr size_t kHeaderBytes = whole_cache_lines(sizeof(CallSignature) + sizeof(uint64_t));

}  // namespace

CallCheck::CallCheck(const topology::GroupLayout& layout, transport::SharedSegment& segment,
                     InterNodeCollectives* inter_node, std::span<const int> names)
    : layout_(layout),
      segment_(segment),
      inter_node_(inter_node),
      names_(names.begin(), names.end()) {
  SMP_CHECK(segment.shape().mailbox_bytes >= kHeaderBytes, "mailboxes too small");
}

size_t CallCheck::mailbox_bytes(size_t payload_bytes) { return kHeaderBytes + payload_bytes; }

size_t CallCheck::payload_bytes() const { return segment_.shape().mailbox_bytes - kHeaderBytes; }

void CallCheck::agree(const CallSignature& call, ConstBytes payload,
                      const transport::WaitLimit& limit) {
  SMP_CHECK(payload.size() <= payload_bytes(), "a payload of {} bytes", payload.size());
  segment_.throw_if_aborted();  // not all waits look at it
  ++calls_;
  std::byte* mine = segment_.mailbox(layout_.rank, calls_);
  const uint64_t size = payload.size();
  std::memcpy(mine, &call, sizeof(call));
  std::memcpy(mine + sizeof(call), &size, sizeof(size));
  if (!payload.empty()) std::memcpy(mine + kHeaderBytes, payload.data(), payload.size());
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

ConstBytes CallCheck::payload(int rank) const {
  const std::byte* mailbox = segment_.mailbox(rank, calls_);
  uint64_t size = 0;
  std::memcpy(&size, mailbox + sizeof(CallSignature), sizeof(size));
  return {mailbox + kHeaderBytes, static_cast<size_t>(size)};
}

size_t CallCheck::written_bytes(int rank) const { return kHeaderBytes + payload(rank).size(); }

/// The mailboxes of a host travel one after the other, each as long as what was written.
void CallCheck::exchange_mailboxes(const transport::WaitLimit& limit) {
  // A wait may end by an exception, and what other hosts send arrives all the same.
  struct Mailboxes {
    std::vector<std::byte> mine;
    std::vector<std::vector<std::byte>> rooms;
  };
  const auto boxes = std::make_shared<Mailboxes>();
  std::vector<std::byte>& mine = boxes->mine;
  for (const int rank : layout_.ranks_on[static_cast<size_t>(layout_.my_host())]) {
    const std::byte* mailbox = segment_.mailbox(rank, calls_);
    mine.insert(mine.end(), mailbox, mailbox + written_bytes(rank));
  }
  const size_t mailbox_bytes = segment_.shape().mailbox_bytes;
  std::vector<Bytes> theirs;
  for (const auto& ranks : layout_.ranks_on) {
    boxes->rooms.emplace_back(ranks.size() * mailbox_bytes);
    theirs.emplace_back(boxes->rooms.back());
  }
  inter_node_->exchange(calls_ - 1, mine, theirs, boxes, limit);  // numbered as collectives are
  for (int host = 0; host < layout_.hosts(); ++host) {
    if (host == layout_.my_host()) continue;
    ConstBytes rest = theirs[static_cast<size_t>(host)];
    for (const int rank : layout_.ranks_on[static_cast<size_t>(host)]) {
      uint64_t size = 0;
      SMP_CHECK(rest.size() >= kHeaderBytes, "{} bytes of mailboxes from another host",
                rest.size());
      std::memcpy(&size, rest.data() + sizeof(CallSignature), sizeof(size));
      SMP_CHECK(size <= mailbox_bytes - kHeaderBytes && kHeaderBytes + size <= rest.size(),
                "a payload of {} bytes from another host", size);
      std::memcpy(segment_.mailbox(rank, calls_), rest.data(), kHeaderBytes + size);
      rest = rest.subspan(kHeaderBytes + size);
    }
  }
}

}  // namespace smp::collectives
