// SPDX-License-Identifier: Apache-2.0
// The text of /opt/ml/output/failure, and advice on errors of scripts that this launcher knows
// better than their text does. The service shows the file's first 1024 bytes, so these hold the
// class, the exit code, the exception and the command; everything else follows below.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "entrypoint/job/failure/output_record.h"
#include "entrypoint/process/spawn.h"

namespace entrypoint {

/// The whole file never gets longer. [bytes]
inline constexpr std::size_t kLongestFailureText = 64 * 1024;

struct Failure {
  std::string error_class = "ExecuteUserScriptError";
  ExitStatus status;
  int stop_signal = 0;                ///< the stop that came before the end, or 0
  std::optional<bool> out_of_memory;  ///< what the kernel's counter says; none: it cannot be read
  bool is_mpirun = false;             ///< what ended is mpirun
  std::string shared_memory;          ///< what a process that ends by SIGBUS has to know of it
  std::string full_disks;             ///< free_space_text() of folders that are full; or empty
  bool debugger = true;               ///< smdebug may be in use: its exceptions count by name
  std::vector<std::string> channels;  ///< that the job has; told where the script asks for another
  std::string module;                 ///< the entry point's within its package; or empty
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
/// The message is that of the cause (cause.h), with the rank and its host in front: an exception,
/// after what it was raised from, with its innermost frames; else what the process ended by, with
/// what was said around it. The class is that of an exception of smdistributed, smdebug or
/// TensorFlow, if one leads and `error_class` is the general one.
///
/// `host_of` names the host of a rank. Pure; the result is valid UTF-8 when `failure` is.
std::string failure_text(const Failure& failure, const OutputRecord& record,
                         const std::function<std::string(int rank)>& host_of);

struct ScriptError {
  std::string_view error;             ///< an exception with its text, or one of the last words
  std::string_view said;              ///< all that was said with it, a usage text among it
  std::vector<std::string> channels;  ///< that the job has
  bool installs = false;              ///< pip's, and not the script's
  std::string module{};               ///< the entry point's within its package; or empty
};

/// Advice on an error: one sentence, at most 150 bytes; empty where nothing is known. Pure.
std::string script_advice(const ScriptError& error);

}  // namespace entrypoint
