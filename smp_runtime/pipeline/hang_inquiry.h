// SPDX-License-Identifier: Apache-2.0
// A rank that has waited for too long asks the others of its pipeline group what they wait for.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "smp_runtime/pipeline/hang_report.h"
#include "smp_runtime/pipeline/payload_dictionary.h"
#include "smp_runtime/transport/transport.h"

namespace smp::pipeline {

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
