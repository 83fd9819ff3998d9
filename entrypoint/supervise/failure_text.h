// SPDX-License-Identifier: Apache-2.0
// The text of /opt/ml/output/failure. The service shows its first 1024 bytes, so these hold the
// class, the exit code, the exception and the command; everything else follows below.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "entrypoint/launch/exit_status.h"
#include "entrypoint/supervise/output_record.h"

namespace entrypoint::supervise {

/// The whole file never gets longer. [bytes]
inline constexpr std::size_t kLongestFailureText = 64 * 1024;

struct Failure {
  std::string error_class = "ExecuteUserScriptError";
  launch::ExitStatus status;
  int stop_signal = 0;                ///< the stop that came before the end, or 0
  std::optional<bool> out_of_memory;  ///< what the kernel's counter says; none: it cannot be read
  std::string command;                ///< secrets masked, as it should be shown
};

/// Layout (five lines that tools parse, then details):
///
///     ExecuteUserScriptError:
///     ExitCode 1
///     ErrorMessage "rank 3 on algo-2: ValueError: boom
///     …innermost frames…"
///     ExtraInfo "…"
///     Command "…"
///
/// `host_of` names the host of a rank. Pure; valid UTF-8 in, valid UTF-8 out.
std::string failure_text(const Failure& failure, const OutputRecord& record,
                         const std::function<std::string(int rank)>& host_of);

}  // namespace entrypoint::supervise
