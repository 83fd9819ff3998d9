// SPDX-License-Identifier: Apache-2.0
// fork and exec with everything a PID 1 has to get right in between, and the end of a process as a
// value.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "smp_runtime/core/file.h"

namespace entrypoint {

struct ExitStatus {
  int code = 0;    ///< exit code; meaningless when `signal` is not 0
  int signal = 0;  ///< the signal that ended the process, or 0

  [[nodiscard]] bool ok() const { return code == 0 && signal == 0; }

  /// The exit code of a shell: 128 + N for signal N.
  [[nodiscard]] int shell_code() const { return signal != 0 ? 128 + signal : code; }

  /// The number in the failure file's ExitCode line: -N for signal N.
  [[nodiscard]] int failure_code() const { return signal != 0 ? -signal : code; }

  bool operator==(const ExitStatus&) const = default;
};

using smp::FileDescriptor;

struct Pipe {
  FileDescriptor read;
  FileDescriptor write;
};

/// Both ends close on exec. Throws HostError.
Pipe make_pipe();

struct SpawnRequest {
  std::vector<std::string> argv;            ///< argv[0] is looked up on the PATH of `environment`
  std::vector<std::string> environment;     ///< complete, NAME=value
  std::filesystem::path working_directory;  ///< empty: ours
  int in = -1;                              ///< -1: ours
  int out = -1;
  int err = -1;
  std::vector<int> ignored_signals;  ///< until the program asks for them itself
};

/// Starts the program as leader of a new process group, no signal blocked and no other one ignored,
/// killed by the kernel when the calling thread ends. Throws ConfigError when the program is not
/// found, HostError for any other refusal, with the reason exec gave.
pid_t spawn(const SpawnRequest& request);

struct HelperChild {
  pid_t pid;
  FileDescriptor result;  ///< what the helper writes, up to its end
};

/// Forks this program, calls `in_child` in the child, then `work`, and writes what it returns. The
/// child leads a process group of its own, dies with this process, and exits with code 1 when the
/// work throws, whose text is the result then. `name` is for messages. Throws HostError when there
/// can be no process.
HelperChild fork_helper(const std::string& name, const std::function<std::string()>& work,
                        const std::function<void()>& in_child);

/// This program's own file, absolute.
std::filesystem::path launcher_path();

/// The file that executing `name` would start, or an empty path. `path` is PATH's value.
std::filesystem::path find_program(std::string_view name, std::string_view path);

/// The value of `name` in a list of NAME=value, or empty.
std::string_view value_of(std::span<const std::string> environment, std::string_view name);

/// This process's own environment as a list of NAME=value.
std::vector<std::string> current_environment();

/// The status that waitpid() stored, as a value.
ExitStatus from_wait_status(int status);

/// Reaps `pid` and says how it ended. Blocks: only for processes that are known to end.
ExitStatus wait_for(pid_t pid);

/// For tools of the machine, such as nvidia-smi.
inline constexpr std::chrono::seconds kToolLimit{30};

struct Completed {
  ExitStatus status;
  bool timed_out = false;  ///< it was killed at the limit
  std::string output;      ///< both streams, cut at 64 KiB
};

/// Runs a short helper to its end with `input` on its standard input. Blocks for at most `limit`,
/// then kills its process group. Throws as spawn().
Completed run_command(SpawnRequest request, std::chrono::milliseconds limit,
                      std::string_view input = {});

}  // namespace entrypoint
