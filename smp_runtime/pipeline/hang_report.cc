// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/hang_report.h"

#include <utility>

#include <fmt/format.h>

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

std::string describe(const Waits& waits, const std::function<std::string(int64_t)>& name_of) {
  std::string text;
  for (const Waits::Call& call : waits.calls) {
    std::string route;
    for (const Hop& hop : call.route) {
      route += fmt::format("{}{} on rank {}", route.empty() ? "" : ", then of ",
                           name_of(hop.target), hop.owner);
    }
    text +=
        fmt::format("\n  microbatch {} waits for the {} of {} of the pipeline group",
                    call.microbatch, call.phase == Phase::kForward ? "forward" : "backward", route);
  }
  if (waits.tensor_of) {
    text += fmt::format("\n  for a tensor of rank {} of the pipeline group", *waits.tensor_of);
  }
  for (const Waits::Parked& call : waits.parked) {
    text += fmt::format(
        "\n  microbatch {}: a call of {} waits for an argument that comes from a third rank",
        call.microbatch, name_of(call.target));
  }
  for (const int64_t microbatch : waits.held) {
    text += fmt::format(
        "\n  microbatch {}: its forward waits for the backward of another one on this rank",
        microbatch);
  }
  if (waits.held_by_order) {
    text += "\n  with work at hand that the order of the recorded step has later";
  }
  if (text.empty()) {
    text = waits.driver ? "\n  for the other ranks of the pipeline group"
                        : "\n  for rank 0 of the pipeline group, which drives the step: do all "
                          "ranks of the group call the step the same number of times?";
  }
  return text;
}

std::string hang_report(const std::string& who, int rank, int64_t step, std::chrono::seconds waited,
                        const GroupWaits& waits) {
  std::string text = fmt::format("step {}: {} waited {} s without progress:{}", step, who,
                                 waited.count(), waits.at(static_cast<size_t>(rank)).value());
  for (size_t other = 0; other < waits.size(); ++other) {
    if (other == static_cast<size_t>(rank)) continue;
    text += fmt::format("\nrank {} of the pipeline group {}", other,
                        waits[other] ? "waits:" + *waits[other]
                                     : "does not answer: it is lost, or runs a module or code "
                                       "outside the step");
  }
  return text;
}

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
