// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/runners/mpi_worker.h"

#include <algorithm>
#include <csignal>
#include <string_view>

#include <unistd.h>

#include "entrypoint/network/reachability.h"
#include "entrypoint/process/process_runner.h"
#include "entrypoint/process/process_tree.h"
#include "entrypoint/runners/child_command.h"
#include "entrypoint/ssh/host_records.h"
#include "entrypoint/ssh/peer.h"
#include "entrypoint/ssh/ssh_client.h"
#include "entrypoint/ssh/sshd.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"
#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

constexpr std::chrono::milliseconds kLookForStatus{50};
constexpr std::chrono::milliseconds kLookForSessions{5};
constexpr std::chrono::seconds kSessionsEnd{5};
constexpr std::chrono::seconds kExchangeMargin{15};
constexpr std::string_view kMasterFailed = "failed\n";  // before a status, where a key would be
// The job is about to end or never began; the master's word may still be on its way.
constexpr std::chrono::milliseconds kStopWithoutRanks{10'000};

std::vector<std::string> texts(const std::vector<tcp::Address>& addresses) {
  std::vector<std::string> result;
  for (const tcp::Address& address : addresses) {
    if (std::ranges::find(result, address.text()) == result.end()) result.push_back(address.text());
  }
  return result;
}

}  // namespace

MpiWorker::MpiWorker(const JobOutline& outline, JobSettings settings, ProcessRunner& processes)
    : outline_(outline),
      choice_(outline.runner),
      settings_(std::move(settings)),
      processes_(processes),
      keys_(choice_, settings_) {
  for (const std::string& host : choice_.hosts) check_host_name(host);
}

std::optional<Outcome> MpiWorker::connect() {
  connects_ = true;
  // The file of an earlier run in this container would end this one at once.
  std::error_code ignored;
  std::filesystem::remove(shared_status_path(choice_.master, settings_.cluster_job), ignored);
  save_rank_environment(keys_.folder().path(), outline_.environment,
                        planned_environment(outline_.environment, settings_.inherited));
  offer_records(keys_.folder().path(), records_folder(outline_.environment));
  if (auto outcome = take_master_key()) return outcome;

  sshd_ = start_sshd(processes_, keys_.folder(), settings_, static_cast<int>(choice_.hosts.size()));
  const WatchRequest watched{.hosts = {choice_.master}, .port = settings_.ssh_port};
  const Deadline deadline = Clock::now() + settings_.worker_timeout;
  // A master that handed its key over has its sshd; of another one nothing is known yet.
  const bool is_up = !keys_.is_mounted();
  watch_ = processes_.start(
      HelperProcess{.name = "watch master", .work = [watched, deadline, is_up] {
                      if (!is_up) {
                        wait_for_port(watched.hosts.front(), watched.port, deadline);
                      }
                      return watch_hosts(watched);
                    }});
  SMP_LOG(info, "Ready for the master's ranks: master={} port={}", choice_.master,
          settings_.ssh_port);
  return std::nullopt;
}

ExchangeRequest MpiWorker::exchange() const {
  return {.host = choice_.current_host,
          .master = choice_.master,
          .job = job_digest(choice_.hosts, settings_.digested_name()),
          .host_key = keys_.host_key(),
          .secret = settings_.secret,
          .master_addresses = [master = choice_.master, port = settings_.ssh_port] {
            return tcp::resolve(master, port);
          }};
}

// None: this host has the key. A value: a stop came first, or the master failed.
std::optional<Outcome> MpiWorker::take_master_key() {
  if (keys_.is_mounted()) {
    keys_.authorize(keys_.job_key(), {});
    return std::nullopt;
  }
  const Deadline deadline = Clock::now() + settings_.worker_timeout;
  const auto exchange_keys = [&]() -> std::string {
    tcp::Listener listener = listen_at_ssh_port(settings_.listen_addresses, settings_.ssh_port);
    const ExchangeRequest request = exchange();
    const Received received = receive_key(listener, request, deadline);
    if (received.failure) return std::string(kMasterFailed) + job_status_text(*received.failure);
    std::string key = received.key;
    // Right now the name resolves, and to where the key came from.
    for (const std::string& address : texts(request.master_addresses())) key += "\n" + address;
    return key;
  };
  const auto answer = run_helper(processes_, "the key exchange", exchange_keys,
                                 settings_.worker_timeout + kExchangeMargin);
  if (!answer) return Outcome{.status = stopped_status(processes_)};
  if (answer->starts_with(kMasterFailed)) {
    const JobStatus status = parse_job_status(answer->substr(kMasterFailed.size()));
    SMP_LOG(error, "The master failed before any rank could start");
    return Outcome{.status = {.code = status.exit_code, .signal = 0}, .followed = status};
  }
  const std::vector<std::string> lines = smp::split(*answer, '\n');
  keys_.authorize(lines.front(), {lines.begin() + 1, lines.end()});
  SMP_LOG(info, "Exchanged keys with {}", choice_.master);
  return std::nullopt;
}

void MpiWorker::announce(const JobStatus& status) {
  if (connects_ || status.exit_code == 0) return;
  SMP_LOG(info, "Waiting for the master to tell it: master={}", choice_.master);
  const Deadline deadline = Clock::now() + settings_.worker_timeout;
  const auto tell_master = [&]() -> std::string {
    tcp::Listener listener = listen_at_ssh_port(settings_.listen_addresses, settings_.ssh_port);
    if (tell_master_of_failure(listener, exchange(), status, deadline)) return {};
    throw smp::HostError("it did not come in time");
  };
  try {
    run_helper(processes_, "telling the master", tell_master,
               settings_.worker_timeout + kExchangeMargin);
  } catch (const smp::Error& error) {
    SMP_LOG(warning, "{} was not told: {}", choice_.master, error.what());
  }
}

Outcome MpiWorker::run(const std::vector<std::string>& /*argv*/) {
  const std::filesystem::path own = keys_.folder().file(kStatusFile);
  const std::filesystem::path shared = shared_status_path(choice_.master, settings_.cluster_job);
  std::optional<Deadline> stop_deadline;
  // No deadline of its own: the job takes what it takes. A master that vanishes ends the watch.
  while (true) {
    // The file first: the master may be gone because the job is over.
    const bool master_is_lost = processes_.ended(watch_).has_value();
    auto status = read_job_status(own);
    if (!status) status = read_job_status(shared);
    if (status) {
      processes_.send(watch_, SIGKILL);
      SMP_LOG(info, "The master reports exit code {}", status->exit_code);
      let_sessions_end();
      return {.status = {.code = status->exit_code, .signal = 0}, .followed = status};
    }
    if (master_is_lost) {
      throw smp::HostError("the master {}; nothing is known of how the job ended, see its log",
                           processes_.collected(watch_));
    }
    if (processes_.ended(sshd_)) {
      throw smp::HostError("sshd ended, so the master cannot reach this host: {}",
                           processes_.collected(sshd_));
    }
    if (processes_.stop_signal() != 0 && !stop_deadline) {
      const std::chrono::milliseconds time =
          stop_ranks() ? settings_.stop_after : std::min(settings_.stop_after, kStopWithoutRanks);
      stop_deadline = Clock::now() + time;
    }
    if (stop_deadline && Clock::now() >= *stop_deadline) {
      return {.status = stopped_status(processes_)};
    }
    processes_.wait(Clock::now() + kLookForStatus);
  }
}

// The session that brought the status is still open: cut off, it would look to the master as if
// nothing had arrived, and that would try again at a port where nobody listens any more.
void MpiWorker::let_sessions_end() {
  const Deadline deadline = Clock::now() + kSessionsEnd;
  const auto runs = [](const Process& process) { return !process.zombie; };
  while (!processes_.ended(sshd_) && Clock::now() < deadline &&
         std::ranges::any_of(descendants(processes_.pid(sshd_)), runs)) {
    processes_.wait(std::min(deadline, Clock::now() + kLookForSessions));
  }
}

// False when there are none.
bool MpiWorker::stop_ranks() {
  bool any = false;
  // They descend from sshd and orted; as PID 1 or subreaper we are above both.
  for (const Process& process : descendants(getpid())) {
    const std::vector<std::string> command = command_line_of(process.pid);
    if (command.size() < 2 || command[1] != "--rank-exec") continue;
    kill(process.pid, SIGUSR1);
    any = true;
  }
  return any;
}

}  // namespace entrypoint
