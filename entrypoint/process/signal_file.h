// SPDX-License-Identifier: Apache-2.0
// Signals of a supervising process, read from a file between two waits and not in handlers.
#pragma once

#include <csignal>
#include <optional>

#include "entrypoint/process/spawn.h"

namespace entrypoint {

/// SIGTERM, SIGINT and SIGHUP, which stop a job.
[[nodiscard]] bool is_stop_signal(int signal);

/// Takes the signals that stop a job, SIGUSR1, SIGUSR2 and SIGCHLD from this process as long as it
/// lives; one at a time. A hangup that was ignored before stays ignored.
class SignalFile {
 public:
  /// Throws HostError.
  SignalFile();
  ~SignalFile();
  SignalFile(const SignalFile&) = delete;
  SignalFile& operator=(const SignalFile&) = delete;

  /// Readable when there is a signal, for poll().
  [[nodiscard]] int get() const { return file_.get(); }
  /// The next signal that arrived; none: do not wait for one.
  [[nodiscard]] std::optional<int> next();
  /// In a forked child: its signals are its own.
  void leave_to_child();

 private:
  FileDescriptor file_;
  sigset_t previous_mask_{};
};

}  // namespace entrypoint
