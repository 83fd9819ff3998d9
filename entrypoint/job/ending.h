// SPDX-License-Identifier: Apache-2.0
// From how a job ended to what the world sees: exit status, marker files, log lines. Programs die
// of a full disk in ways that do not say so, and a SIGKILL alone does not tell of a kill for
// memory: both are looked for here. Secrets that none of these may show are collected first.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "entrypoint/config/launch_options.h"
#include "entrypoint/job/failure/output_record.h"
#include "entrypoint/plan/parallel_check.h"
#include "entrypoint/plan/secrets.h"
#include "entrypoint/process/supervisor.h"
#include "entrypoint/runners/job_runner.h"
#include "opt_ml_layout/paths.h"

namespace entrypoint {

/// Facts by which the end is judged, besides the outcome.
struct EndContext {
  ExitPolicy policy = ExitPolicy::kOne;
  std::optional<long> oom_kills_before;        ///< oom_kills() when the job began
  std::vector<std::filesystem::path> folders;  ///< a full disk under one of them is told
  std::vector<std::string> channels;           ///< of the job, by name
  std::string module;                          ///< CodeFolder::entry_point_module
  std::vector<RankPlace> ranks;                ///< of the job, with their hosts
  bool runs_mpirun = false;
  std::string shared_memory;  ///< shared_memory_text()
  bool debugger = true;       ///< USE_SMDEBUG is not 0
  Secrets secrets;            ///< masked in the failure text
};

/// True if the program was aborted (by SIGABRT, or exit code 134 of a shell or mpirun) and
/// gloo::EnforceNotMet ended it: gloo aborts a process whose peers left first, after the script's
/// work is done, which PyTorch's images have always forgiven. Any other status is a failure,
/// regardless of the output.
bool is_gloo_abort(const ExitStatus& status, const OutputRecord& record);

/// The status of a job whose program ended and wrote `output`. Exit code: 0 when it ended well,
/// stopped or not; 128 + N after a stop by signal N; else 1, or the program's own where the user
/// wants that. A worker repeats what the master said. Pure but for the kernel's memory counter and
/// the free space.
JobStatus status_of(const Outcome& outcome, const Supervisor& processes, const OutputRecord& output,
                    const EndContext& context);

/// The status of a job that an exception ended: the message alone for what the user can correct,
/// "Framework Error" before everything else; then the disks that are full.
JobStatus status_of(const std::exception& error, const EndContext& context = {});

/// Removes the markers that an earlier run left in the tree, and says so in the log: what is found
/// at the end is this run's.
void remove_old_markers(const opt_ml::Layout& layout);

/// Writes the marker (a failure text of the user's own stays) and says so in the log. A marker that
/// cannot be written makes success a failure. Returns the exit status.
int publish(const opt_ml::Layout& layout, const JobStatus& status);

/// From now on log lines carry the name that users' filters know. `level` as in Python's logging.
void log_as_the_launcher(int level = 20);

/// The secrets that the environment and the tree's hyperparameters hold, as far as these can be
/// read. From now on the log masks them.
Secrets keep_secrets(const opt_ml::Layout& layout, const smp::Variables& environment);

/// An error outside of a job: one line, no marker. Returns the exit status.
int print_error(const std::exception& error);

/// Number of times that the kernel killed a process of this container for memory, from cgroup v2's
/// memory.events or v1's memory.oom_control; none when neither can be read. Compare a value from
/// before the job with one from after it.
std::optional<long> oom_kills(const std::filesystem::path& proc = "/proc",
                              const std::filesystem::path& cgroups = "/sys/fs/cgroup");

/// Below this a folder counts as full. [bytes]
inline constexpr std::uintmax_t kFullBelow = std::uintmax_t{64} * 1024 * 1024;

struct FreeSpace {
  std::filesystem::path folder;
  std::uintmax_t bytes = 0;  ///< that we may still write
};

/// Free space of each folder that can be asked; folders on one file system count once.
std::vector<FreeSpace> free_space(std::span<const std::filesystem::path> folders);

/// "/opt/ml 1.5 GB, /tmp 20 MB"; only those below `limit`. Empty: none is. Pure.
std::string free_space_text(std::span<const FreeSpace> spaces, std::uintmax_t limit);

}  // namespace entrypoint
