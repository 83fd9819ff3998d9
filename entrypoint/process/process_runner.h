// SPDX-License-Identifier: Apache-2.0
// The operating system as the launcher needs it: start processes, wait, signal; and pieces of work
// in child processes, whose errors are thrown here. The real one is supervisor.h; tests bring their
// own.
#pragma once

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "entrypoint/process/spawn.h"
#include "smp_runtime/core/deadline.h"

namespace entrypoint {

using smp::Clock;
using smp::Deadline;
using smp::kNever;
using smp::poll_timeout;

/// One step of ending a process that was asked to stop.
struct StopStep {
  std::chrono::milliseconds after{0};  ///< counted from the first stop signal
  int signal = 0;                      ///< kForward: the signal that we got ourselves

  static constexpr int kForward = 0;
  bool operator==(const StopStep&) const = default;
};

/// The destination of a process's two streams.
enum class Output {
  kStream,   ///< live to our own streams, rank tags rewritten, remembered for the failure text
  kCollect,  ///< kept for collected(), shown to nobody
};

struct Command {
  std::string name;  ///< for messages: "mpirun", "sshd"
  std::vector<std::string> argv;
  std::vector<std::string> environment;     ///< complete, NAME=value
  std::filesystem::path working_directory;  ///< empty: ours
  Output output = Output::kCollect;
  std::vector<StopStep> on_stop;       ///< empty: a stop request is the caller's to act on
  bool forwards_user_signals = false;  ///< SIGUSR1 and SIGUSR2 go to its process group
  int sigusr1_as = SIGUSR1;            ///< for mpirun, to whose ranks SIGUSR1 means: stop
  std::vector<int> ignored_signals;  ///< until it asks for them, and again when it is about to end
};

/// A piece of our own program that may block, run in a forked child so that it can be killed at any
/// time. What `work` returns is collected() by the parent; an exception makes the exit code 1 and
/// its text the collected one.
struct HelperProcess {
  std::string name;
  std::function<std::string()> work;
};

using ChildId = int;

enum class Wake {
  kChildEnded,     ///< one child ended: ask ended()
  kStopRequested,  ///< a stop signal came: stop_signal() is set; reported once for each signal
  kUserSignal,     ///< SIGUSR1 or SIGUSR2 came and no process takes it: user_signal() says which
  kDeadline,
};

/// Single-threaded: every method from the thread that made the object. Each process leads a process
/// group of its own and dies with us.
class ProcessRunner {
 public:
  virtual ~ProcessRunner() = default;

  /// Throws ConfigError when the program cannot be found, HostError when it cannot be started.
  virtual ChildId start(const Command& command) = 0;
  virtual ChildId start(const HelperProcess& helper) = 0;

  /// Moves output, reaps, acts on signals, until there is something to tell or `deadline` comes.
  virtual Wake wait(Deadline deadline) = 0;

  /// Of a process that may have ended.
  [[nodiscard]] virtual pid_t pid(ChildId child) const = 0;

  /// Set once the process is gone and its output is read.
  [[nodiscard]] virtual std::optional<ExitStatus> ended(ChildId child) const = 0;

  /// Output::kCollect: what it wrote so far, both streams, the last 64 KiB.
  [[nodiscard]] virtual std::string collected(ChildId child) const = 0;

  /// Signals the process group; nothing happens if it has ended.
  virtual void send(ChildId child, int signal) = 0;

  /// The first stop signal (SIGTERM, SIGINT, SIGHUP) that came, or 0.
  [[nodiscard]] virtual int stop_signal() const = 0;

  /// The signal of the last Wake::kUserSignal.
  [[nodiscard]] virtual int user_signal() const = 0;
};

/// Wraps `work`: its result or its error, as one text.
std::function<std::string()> reporting(std::function<std::string()> work);

/// The result out of such a text. Throws ConfigError and HostError as the work did, and HostError
/// for a child that ended without a word. `name` says whose.
std::string result_of(const std::string& name, const std::optional<ExitStatus>& ended,
                      const std::string& collected);

/// Starts the work and waits for its end: what it returned, or nothing when a stop came meanwhile,
/// whatever became of the work. Throws as result_of() does, and HostError after `limit`. The child
/// has ended or is killed then.
std::optional<std::string> run_helper(ProcessRunner& runner, const std::string& name,
                                      std::function<std::string()> work,
                                      std::chrono::milliseconds limit);

}  // namespace entrypoint
