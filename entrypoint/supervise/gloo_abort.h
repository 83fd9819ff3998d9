// SPDX-License-Identifier: Apache-2.0
// One failure that PyTorch's images have always forgiven: gloo aborts a process whose peers left
// first, after the script's work is done.
#pragma once

#include "entrypoint/launch/process/exit_status.h"
#include "entrypoint/supervise/output_record.h"

namespace entrypoint::supervise {

/// Whether the program was aborted (by SIGABRT, or exit code 134 of a shell or mpirun) and
/// gloo::EnforceNotMet was what ended it. Any other status is a failure whatever was printed.
bool is_gloo_abort(const launch::ExitStatus& status, const OutputRecord& record);

}  // namespace entrypoint::supervise
