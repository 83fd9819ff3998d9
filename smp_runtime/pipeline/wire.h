// SPDX-License-Identifier: Apache-2.0
// The messages of the pipeline engine and their form on the wire.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "smp_runtime/pipeline/task_order.h"
#include "smp_runtime/transport/transport.h"

namespace smp::pipeline {

enum class Kind : uint8_t {
  kStepBegin,       ///< driver -> all; body: this rank's order plan, if there is one
  kForward,         ///< caller -> first hop of the route -> ... -> last hop
  kForwardReply,    ///< last hop -> caller
  kBackward,        ///< caller -> last hop -> ... -> first hop, for a call made before
  kBackwardReply,   ///< first hop -> caller
  kMicrobatchDone,  ///< driver -> all; releases everything kept for the microbatch
  kTrail,           ///< all -> driver; body: the visits of microbatch 0 on this rank
  kStepEnd,         ///< driver -> all; carries what the step returns
  kUse,             ///< all -> driver; body: the share of its last step that this rank computed
  kAbort,           ///< any -> all; body: why
};

/// A module and where it lives.
struct Hop {
  int owner = 0;
  int64_t target = 0;  ///< what is called, in the executor's terms; for reports too

  bool operator==(const Hop&) const = default;
};

/// What one call passes through: each target gets what the one before it returned, without a detour
/// over the caller. Consecutive hops have different owners, and none is the caller.
using Route = std::vector<Hop>;

/// One message. `body` and `payload` belong to the executor; the engine carries them unread.
struct Envelope {
  Kind kind = Kind::kStepBegin;
  int64_t step = 0;
  int64_t microbatch = 0;
  uint64_t call = 0;  ///< unique in its step: caller's rank and a counter
  int depth = 0;      ///< nesting of the work asked for
  int64_t visit = 0;  ///< see TaskKey
  int caller = -1;    ///< of calls: who gets the reply
  int hop = 0;        ///< of calls: where on the route the message is
  Route route;        ///< of calls
  std::string body;
  std::shared_ptr<transport::Payload> payload;
  int source = -1;  ///< not sent: the transport knows it
};

[[nodiscard]] transport::Message encode(Envelope envelope);

/// Throws InternalError if the bytes are not an envelope.
[[nodiscard]] Envelope decode(transport::Message message);

}  // namespace smp::pipeline
