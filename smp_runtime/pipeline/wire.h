// SPDX-License-Identifier: Apache-2.0
// The messages of the pipeline engine and their form on the wire.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "smp_runtime/pipeline/task_order.h"
#include "smp_runtime/transport/transport.h"

namespace smp::pipeline {

enum class Kind : uint8_t {
  kStepBegin,       ///< driver -> all; body: this rank's order plan, if there is one
  kForward,         ///< caller -> owner
  kForwardReply,    ///< owner -> caller
  kBackward,        ///< caller -> owner, for a call made before
  kBackwardReply,   ///< owner -> caller
  kMicrobatchDone,  ///< driver -> all; releases everything kept for the microbatch
  kTrail,           ///< all -> driver; body: the visits of microbatch 0 on this rank
  kStepEnd,         ///< driver -> all; carries what the step returns
  kAbort,           ///< any -> all; body: why
};

/// One message. `body` and `payload` belong to the executor; the engine carries them unread.
struct Envelope {
  Kind kind = Kind::kStepBegin;
  int64_t step = 0;
  int64_t microbatch = 0;
  uint64_t call = 0;   ///< unique in its step: caller's rank and a counter
  int depth = 0;       ///< nesting of the work asked for
  int64_t visit = 0;   ///< see TaskKey
  int64_t target = 0;  ///< what is called, in the executor's terms; for reports too
  std::string body;
  std::shared_ptr<transport::Payload> payload;
  int source = -1;  ///< not sent: the transport knows it
};

[[nodiscard]] transport::Message encode(Envelope envelope);

/// Throws InternalError if the bytes are not an envelope.
[[nodiscard]] Envelope decode(transport::Message message);

}  // namespace smp::pipeline
