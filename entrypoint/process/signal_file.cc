// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/process/signal_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <sys/signalfd.h>
#include <unistd.h>

#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

constexpr std::array kStopSignals{SIGTERM, SIGINT, SIGHUP};
constexpr std::array kOtherSignals{SIGUSR1, SIGUSR2, SIGCHLD};

// `nohup train` means it: a hangup that was ignored when we started stays ignored.
bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

sigset_t supervised_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kStopSignals) {
    if (signal != SIGHUP || !is_ignored(signal)) sigaddset(&set, signal);
  }
  for (const int signal : kOtherSignals) sigaddset(&set, signal);
  return set;
}

}  // namespace

bool is_stop_signal(int signal) {
  return std::ranges::find(kStopSignals, signal) != kStopSignals.end();
}

SignalFile::SignalFile() {
  const sigset_t set = supervised_signals();
  sigprocmask(SIG_BLOCK, &set, &previous_mask_);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGCHLD, SIG_DFL);  // inherited as ignored it would let no child be waited for
  file_ = FileDescriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!file_.is_open()) throw smp::HostError("signalfd: {}", std::strerror(errno));
}

SignalFile::~SignalFile() {
  signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, &previous_mask_, nullptr);
}

std::optional<int> SignalFile::next() {
  signalfd_siginfo info{};
  if (read(file_.get(), &info, sizeof(info)) != sizeof(info)) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

void SignalFile::leave_to_child() {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  file_.close();
}

}  // namespace entrypoint
