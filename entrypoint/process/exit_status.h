// SPDX-License-Identifier: Apache-2.0
// The end of a process, as a value, and the three numbers made from it.
#pragma once

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

}  // namespace entrypoint
