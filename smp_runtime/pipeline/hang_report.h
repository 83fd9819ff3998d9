// SPDX-License-Identifier: Apache-2.0
// A rank that has waited for a whole timeout, in which nothing has moved, asks the others of its
// pipeline group what they wait for; the report of it is the text of the error.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "smp_runtime/pipeline/envelope.h"
#include "smp_runtime/pipeline/payload_dictionary.h"
#include "smp_runtime/schedule/task_order.h"
#include "smp_runtime/transport/transport.h"

namespace smp::pipeline {

using schedule::Phase;

/// Ranks are those of the pipeline group.
struct Waits {
  struct Call {
    int64_t microbatch = 0;
    Phase phase = Phase::kForward;
    Route route;
  };
  struct Parked {
    int64_t microbatch = 0;
    int64_t target = 0;
  };
  std::vector<Call> calls;       ///< whose results have not come
  std::optional<int> tensor_of;  ///< a rank that holds a tensor that was asked for
  std::vector<Parked> parked;    ///< calls to serve that lack an argument of a third rank
  std::vector<int64_t> held;     ///< microbatches at hand that OpenMicrobatches does not admit
  bool held_by_order = false;    ///< there is work, which the recorded order has later
  bool driver = false;           ///< it is rank 0, which drives the step
};

/// A line each, behind a line end. `name_of` names what a call calls.
[[nodiscard]] std::string describe(const Waits& waits,
                                   const std::function<std::string(int64_t)>& name_of);

/// By rank, what describe() said there; nothing for a rank that does not answer.
using GroupWaits = std::vector<std::optional<std::string>>;

/// `who` is rank `rank` of the pipeline group, and has waited for so long.
[[nodiscard]] std::string hang_report(const std::string& who, int rank, int64_t step,
                                      std::chrono::seconds waited, const GroupWaits& waits);

struct Inquiry {
  GroupWaits waits;
  std::optional<std::string> aborted;  ///< a rank has ended the step meanwhile: why
};

/// Blocks until all have answered, at most `limit`. A rank answers while it waits for messages, not
/// while it runs a module. `own` is this rank's answer, to others that ask at the same time, too.
/// Other messages of the step are dropped, for it has failed; `bodies` sees them.
Inquiry ask_group(transport::Transport& transport, PayloadDictionary& bodies, int64_t step,
                  const std::string& own, std::chrono::milliseconds limit);

/// Tells rank `asker`; a lost one needs no answer.
void answer_inquiry(transport::Transport& transport, int asker, const std::string& own);

}  // namespace smp::pipeline
