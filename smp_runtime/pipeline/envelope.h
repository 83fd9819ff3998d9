// SPDX-License-Identifier: Apache-2.0
// The messages of the pipeline engine and their form as bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "smp_runtime/transport/transport.h"

namespace smp::pipeline {

enum class Kind : uint8_t {
  kStepBegin,       ///< driver -> all; body: this rank's RankOrder
  kForward,         ///< caller -> first hop of the route -> ... -> last hop
  kForwardReply,    ///< last hop -> caller
  kBackward,        ///< caller -> last hop -> ... -> first hop, for a call made before
  kBackwardReply,   ///< first hop -> caller
  kMicrobatchDone,  ///< driver -> all; releases everything kept for the microbatch
  kRecordedOrder,   ///< all -> driver; body: the runs of microbatch 0 on this rank
  kStepEnd,         ///< driver -> all; carries what the step returns
  kUse,             ///< all -> driver; body: this rank's StepShares of its last step, and its
                    ///< runs if these were timed
  kSend,            ///< caller -> holder of the value in `inputs`: send it to rank `caller`
  kValue,           ///< holder -> who will use value `call`
  kInquiry,         ///< any -> all, behind a timeout: what do you wait for?
  kAnswer,          ///< to it; body: the lines of a hang report
  kAbort,           ///< any -> all; body: why
};

/// A module and where it lives.
struct Hop {
  int owner = 0;
  int64_t target = 0;  ///< what is called, in the executor's terms; for reports too

  bool operator==(const Hop&) const = default;
};

/// Hops of one call: each target gets the result of the one before it, without a detour over the
/// caller. Consecutive hops have different owners, and none is the caller.
using Route = std::vector<Hop>;

/// One tensor of a call's results, or of its gradients, that does not come back to the caller.
/// Unique in its step: the caller's rank and a counter.
using ValueId = uint64_t;

/// One output of a call's last hop that does not come back to the caller.
struct KeptOutput {
  int32_t output = 0;        ///< which one, in the executor's count
  int32_t destination = -1;  ///< who will use it; -1: not known, it stays where it is made
  ValueId id = 0;

  bool operator==(const KeptOutput&) const = default;
};

/// One message. The `body` and `payload` of calls and replies are the executor's; Server carries
/// them unread, and has bodies of its own for the kinds that begin, record and end a step.
struct Envelope {
  Kind kind = Kind::kStepBegin;
  int64_t step = 0;
  int64_t microbatch = 0;
  uint64_t call = 0;            ///< unique in its step: caller's rank and a counter
  int depth = 0;                ///< nesting of the work asked for
  int64_t run = 0;              ///< see schedule::TaskKey
  int64_t ranks = 0;            ///< how many ranks the microbatch has been on
  int caller = -1;              ///< of calls: who gets the reply
  int hop = 0;                  ///< of calls: where on the route the message is
  Route route;                  ///< of calls
  std::vector<ValueId> inputs;  ///< of calls: values that the first hop's request consists of, too
  std::vector<KeptOutput> outputs_kept;  ///< of calls
  std::vector<ValueId> released;  ///< values that the receiver holds and nobody will ask for again
  std::string body;
  int32_t number =
      -1;  ///< of the body, for PayloadDictionary; without a body, one that was sent before
  std::shared_ptr<transport::Payload> payload;
  int source = -1;  ///< not sent: the transport knows it
};

[[nodiscard]] transport::Message encode(Envelope envelope);

/// Throws InternalError if the bytes are not an envelope.
[[nodiscard]] Envelope decode(transport::Message message);

}  // namespace smp::pipeline
