// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/runners/rank_exec.h"

#include <cerrno>
#include <csignal>
#include <utility>

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "entrypoint/process/process_tree.h"
#include "entrypoint/process/spawn.h"
#include "entrypoint/runners/child_command.h"
#include "entrypoint/ssh/sshd.h"
#include "opt_ml_layout/json_document.h"
#include "smp_runtime/cluster/launch_ranks.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/file.h"
#include "smp_runtime/core/host.h"
#include "smp_runtime/core/log.h"
#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, kUserSignal1OverMpi,
                            SIGCHLD};

std::vector<std::string> whole_command(const RankRequest& request) {
  std::vector<std::string> words = request.command;
  if (request.command_file.empty()) return words;
  const std::string text = smp::read_text(request.command_file);
  if (text.empty()) {
    throw smp::HostError("{}: cannot be read, and holds the command of the ranks of this host",
                         request.command_file.string());
  }
  for (std::string& word : smp::split_terminated(text, '\0')) words.push_back(std::move(word));
  return words;
}

// mpirun reports what the parent of a rank died of, so it dies of what the rank did.
[[noreturn]] void die_of(int signal) {
  const rlimit none{.rlim_cur = 0, .rlim_max = 0};
  setrlimit(RLIMIT_CORE, &none);  // the rank has dumped its own
  ::signal(signal, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
  kill(getpid(), signal);
  _exit(128 + signal);  // for signals that do not end a process
}

}  // namespace

void leave_out_sleeping_transport(std::vector<std::string>& environment) {
  constexpr const char* kTransports = "OMPI_MCA_btl";
  // The value of our own -mca option; the documented command line stays as scripts know it.
  if (value_of(environment, kTransports) == "^openib") {
    set_variable(environment, kTransports, "^openib,ofi");
  }
}

void set_rank_variables(std::vector<std::string>& environment) {
  for (const auto& [name, value] : smp::cluster::rank_variables(smp::variables_of(environment))) {
    set_variable(environment, name, value);
  }
}

void set_own_host(std::vector<std::string>& environment, std::string_view machine) {
  const auto hosts = opt_ml::try_parse_json(std::string(value_of(environment, "SM_HOSTS")));
  if (!hosts || hosts->list() == nullptr) return;
  if (!value_of(environment, "SM_CURRENT_HOST").empty()) return;
  const auto first_label = [](std::string_view name) { return name.substr(0, name.find('.')); };
  for (const opt_ml::Value& host : *hosts->list()) {
    if (host.text() == nullptr || first_label(*host.text()) != first_label(machine)) continue;
    set_variable(environment, "SM_CURRENT_HOST", *host.text());
    set_variable(environment, "CURRENT_HOST", *host.text());
    return;
  }
}

int run_rank(const RankRequest& request) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kSignals) sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  // SIGCHLD inherited as ignored would let no child be waited for; mpirun ignores others.
  for (const int number : kSignals) signal(number, SIG_DFL);
  const pid_t daemon = getppid();
  prctl(PR_SET_PDEATHSIG, SIGTERM);

  const std::vector<std::string> current = current_environment();
  const std::string folder(value_of(current, kFolderVariable));
  std::vector<std::string> environment = rank_environment(folder, current);
  if (folder.empty()) set_own_host(environment, smp::host_name());
  if (request.sets_rank_variables) set_rank_variables(environment);
  leave_out_sleeping_transport(environment);
  const pid_t rank = spawn({.argv = whole_command(request), .environment = std::move(environment)});

  bool stopped = false;
  // No deadline: the rank runs as long as it runs, and whoever wants its end sends a signal.
  while (true) {
    if (getppid() != daemon) kill(-rank, SIGKILL);
    siginfo_t info{};
    const int number = sigwaitinfo(&set, &info);
    if (number < 0) continue;  // interrupted by a debugger
    if (number == SIGCHLD) {
      int status = 0;
      if (waitpid(rank, &status, WNOHANG) != rank) continue;
      if (const auto left = left_in_group(rank); !stopped && !left.empty()) {
        SMP_LOG(warning, "{}", left_processes_text(left));
      }
      kill(-rank, SIGKILL);  // what it left behind would hold mpirun's pipes open
      const ExitStatus ended = from_wait_status(status);
      if (ended.signal != 0) die_of(ended.signal);
      return ended.code;
    }
    if (number == SIGUSR1 || number == SIGTERM) {
      if (!stopped) kill(-rank, SIGTERM);
      stopped = true;
    } else {
      kill(-rank, number == kUserSignal1OverMpi ? SIGUSR1 : number);
    }
  }
}

}  // namespace entrypoint
