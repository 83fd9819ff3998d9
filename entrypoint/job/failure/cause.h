// SPDX-License-Identifier: Apache-2.0
// The cause of a job's end. One judgement for every process of a job, under every runner, and one
// order of evidence.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "entrypoint/job/failure/output_record.h"
#include "entrypoint/process/spawn.h"

namespace entrypoint {

/// The end of the job's own process.
struct ProgramEnd {
  ExitStatus status;
  bool is_mpirun = false;  ///< its exit codes are its own
  bool installs = false;   ///< pip: what matters is said by what it started
};

struct Cause {
  int rank = OutputRecord::kNoRank;      ///< whose; kNoRank: the only process's, or nobody's
  const Traceback* traceback = nullptr;  ///< that ended the process; then there is no headline
  std::string headline{};                ///< may have several lines
  std::string context{};                 ///< what was said around it; may be empty
  std::vector<std::string> errors{};     ///< lines that advice may be known for, best first
  int signal = 0;                        ///< that ended the process, or 0
};

/// The order of evidence: a host that mpirun lost; of the process that the launcher of ranks names
/// as the first to end, else of all, the traceback that ended it; an end by a signal from outside;
/// a crash's words; an error line; what a parent says of its child; exit code and last words;
/// mpirun's own reason where no rank spoke.
///
/// A traceback ended its process only if that exited with code 1, which is Python's for what nobody
/// caught, and had nothing to say after it but the noise of an exit, on the other stream what was
/// buffered; with another code if nothing at all came after it. Where several workers share
/// torchrun's streams, words of others may follow one that looks uncaught. Any other is told of as
/// `earlier: …`. Exceptions that blame another rank come behind all others.
///
/// Pure. The pointer is into `record`.
Cause find_cause(const ProgramEnd& end, const OutputRecord& record);

/// The tracebacks of all processes, for the details; in the order in which they may be the cause.
struct RankTraceback {
  int rank = OutputRecord::kNoRank;
  const Traceback* traceback = nullptr;
};
std::vector<RankTraceback> tracebacks(const OutputRecord& record);

/// The exception that ended a program below a script that ended with 0: the last block of a process
/// looks uncaught, and it had nothing to say after it. None for a block whose outermost frame is
/// `script` itself, which ended well. Pure.
std::optional<std::string> hidden_error(const OutputRecord& record, const std::string& script);

/// The signal that ended the program, or 0: its own, or one that a shell's code 128 + N tells of
/// where programs usually die of it. mpirun's codes tell of none. Pure.
int ending_signal(const ProgramEnd& end);

}  // namespace entrypoint
