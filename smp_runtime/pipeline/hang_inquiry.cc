// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/hang_inquiry.h"

#include <utility>

#include "smp_runtime/core/deadline.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/pipeline/envelope.h"

namespace smp::pipeline {
namespace {

void tell(transport::Transport& transport, int rank, Envelope envelope) {
  try {
    transport.send(rank, encode(std::move(envelope)));
  } catch (const HostError&) {
    // The rank is lost, and counts as one that does not answer.
  }
}

}  // namespace

Inquiry ask_group(transport::Transport& transport, PayloadDictionary& bodies, int64_t step,
                  const std::string& own, std::chrono::milliseconds limit) {
  Inquiry inquiry{.waits = GroupWaits(static_cast<size_t>(transport.size())), .aborted = {}};
  const int rank = transport.rank();
  inquiry.waits[static_cast<size_t>(rank)] = own;
  for (int peer = 0; peer < transport.size(); ++peer) {
    if (peer != rank) tell(transport, peer, {.kind = Kind::kInquiry});
  }
  const auto deadline = Clock::now() + limit;
  int missing = transport.size() - 1;
  while (missing > 0 && !inquiry.aborted) {
    std::optional<transport::Message> message;
    try {
      message = transport.receive(deadline);
    } catch (const HostError&) {
      break;  // a rank is lost
    }
    if (!message) break;
    Envelope envelope = decode(std::move(*message));
    bodies.restore(envelope);
    if (envelope.kind == Kind::kInquiry) {
      answer_inquiry(transport, envelope.source, own);
    } else if (envelope.kind == Kind::kAnswer) {
      auto& answer = inquiry.waits[static_cast<size_t>(envelope.source)];
      if (!answer) --missing;
      answer = std::move(envelope.body);
    } else if (envelope.kind == Kind::kAbort && envelope.step == step) {
      inquiry.aborted = std::move(envelope.body);
    }
  }
  return inquiry;
}

void answer_inquiry(transport::Transport& transport, int asker, const std::string& own) {
  tell(transport, asker, {.kind = Kind::kAnswer, .body = own});
}

}  // namespace smp::pipeline
