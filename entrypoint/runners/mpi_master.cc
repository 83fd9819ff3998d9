// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/runners/mpi_master.h"

#include <algorithm>
#include <csignal>
#include <map>

#include <fmt/ranges.h>

#include "entrypoint/network/reachability.h"
#include "entrypoint/runners/child_command.h"
#include "entrypoint/runners/host_tasks.h"
#include "entrypoint/ssh/host_records.h"
#include "entrypoint/ssh/key_exchange.h"
#include "entrypoint/ssh/ssh_client.h"
#include "entrypoint/ssh/sshd.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"
#include "smp_runtime/core/text.h"
#include "smp_runtime/core/variables.h"

namespace entrypoint {
namespace {

// One try of a peer may be under way when the time is up.
constexpr std::chrono::seconds kPeerMargin{30};
constexpr std::chrono::seconds kDelivery{15};
constexpr std::chrono::seconds kDeliveryMargin{5};
constexpr std::chrono::seconds kMpirunEnd{5};
constexpr std::chrono::milliseconds kLookAgain{1000};
constexpr std::chrono::seconds kRecords{18};
constexpr std::chrono::seconds kRecordsMargin{2};
// Hosts that prepare themselves need about as long as each other.
constexpr std::chrono::milliseconds kPreparation{120'000};

}  // namespace

MpiMaster::MpiMaster(const JobOutline& outline, JobSettings settings, ProcessRunner& processes)
    : outline_(outline),
      choice_(outline.runner),
      settings_(std::move(settings)),
      processes_(processes),
      keys_(choice_, settings_),
      rank_secret_(settings_.secret ? *settings_.secret : smp::JobSecret::draw()) {
  for (const std::string& host : choice_.hosts) {
    check_host_name(host);
    if (host != choice_.current_host) workers_.push_back(host);
  }
  waiting_ = workers_;
}

std::optional<Outcome> MpiMaster::connect() {
  keys_.authorize(keys_.job_key(), settings_.own_addresses);  // mpirun may start a daemon here, too
  save_rank_environment(keys_.folder().path(), outline_.environment,
                        planned_environment(outline_.environment, settings_.inherited));
  keys_.folder().write(kSecretFile, rank_secret_.text());
  // Workers look at this port to see that their master lives; those of an engine ask for nothing.
  const int hosts = static_cast<int>(choice_.hosts.size());
  if (!choice_.cluster_serves_hosts) {
    sshd_ = start_sshd(processes_, keys_.folder(), settings_, hosts);
  }
  return wait_for_workers();
}

PeerRequest MpiMaster::peer(const std::string& host) const {
  return {.host = host,
          .port = settings_.ssh_port,
          .job = job_digest(choice_.hosts, settings_.digested_name()),
          .job_key = keys_.is_mounted() ? "" : keys_.job_key(),
          .secret = settings_.secret,
          .rank_secret = rank_secret_.text(),
          .folder = keys_.folder().path(),
          .ssh_config = keys_.ssh_config(),
          .environment = settings_.inherited};
}

// None: all are there. A value: a stop came first, or a worker failed and said how.
std::optional<Outcome> MpiMaster::wait_for_workers() {
  const Deadline deadline = Clock::now() + settings_.worker_timeout;
  std::map<std::string, ChildId> helpers;
  for (const std::string& host : workers_) {
    helpers[host] = processes_.start(
        HelperProcess{.name = "reach " + host, .work = [request = peer(host), deadline] {
                        const std::optional<JobStatus> failed = wait_for_peer(request, deadline);
                        return failed ? job_status_text(*failed) : std::string{};
                      }});
  }
  const auto sshd_ended = [&] { return sshd_ && processes_.ended(*sshd_); };
  const auto answered = [&](ChildId helper) {
    const auto ended = processes_.ended(helper);
    return ended && ended->ok();
  };
  const auto failed = [&](const auto& item) {
    return answered(item.second) && !processes_.collected(item.second).empty();
  };
  const auto pending = [&] {
    return std::ranges::any_of(helpers,
                               [&](const auto& item) { return !processes_.ended(item.second); });
  };
  while (pending() && processes_.stop_signal() == 0 && !sshd_ended() &&
         std::ranges::none_of(helpers, failed)) {
    if (processes_.wait(deadline + kPeerMargin) == Wake::kDeadline) break;
  }

  std::string unreachable;
  for (const auto& [host, helper] : helpers) {
    const auto ended = processes_.ended(helper);
    if (answered(helper)) {
      std::erase(waiting_, host);
      if (processes_.collected(helper).empty()) ready_.push_back(host);
      continue;
    }
    processes_.send(helper, SIGKILL);
    const std::string reason = ended ? processes_.collected(helper) : host + ": no answer";
    unreachable += (unreachable.empty() ? "" : "; ") + reason;
  }
  if (processes_.stop_signal() != 0) {
    return Outcome{.status = stopped_status(processes_)};
  }
  if (const auto told = std::ranges::find_if(helpers, failed); told != helpers.end()) {
    JobStatus status = parse_job_status(processes_.collected(told->second));
    SMP_LOG(error, "{} failed before any rank could start", told->first);
    status.failure_text +=
        fmt::format("\nSo says host {}; no rank of the job has started.\n", told->first);
    return Outcome{.status = {.code = status.exit_code, .signal = 0}, .followed = status};
  }
  waiting_.clear();  // who did not answer until now is not told either
  if (sshd_ended()) {
    throw smp::HostError("sshd ended at its start: {}", processes_.collected(*sshd_));
  }
  if (!unreachable.empty()) {
    throw smp::HostError(
        "{} of {} hosts could not be reached within {} s: {}; see that every container of the job "
        "started and look at its log (SM_LAUNCH_WORKER_TIMEOUT sets the time)",
        helpers.size() - ready_.size(), choice_.hosts.size(),
        std::chrono::duration_cast<std::chrono::seconds>(settings_.worker_timeout).count(),
        unreachable);
  }
  SMP_LOG(info, "All hosts can be reached over ssh: hosts={} port={}", choice_.hosts.size(),
          settings_.ssh_port);
  return std::nullopt;
}

std::vector<std::string> MpiMaster::mpirun_environment() const {
  std::vector<std::string> environment =
      planned_environment(outline_.environment, settings_.inherited);
  // By the environment, so that the command line stays what the documentation shows; an agent of
  // the user's on the command line wins over this.
  const std::vector<std::string> ssh = ssh_command(keys_.ssh_config());
  set_variable(environment, "OMPI_MCA_plm_rsh_agent", fmt::to_string(fmt::join(ssh, " ")));
  // Open MPI 5 knows them by other names, and leaves out the last word of an agent.
  std::string words = fmt::to_string(fmt::join(ssh.begin() + 1, ssh.end(), " "));
  const std::string own = smp::value_or(smp::variables_of(environment), "OMPI_MCA_plm_rsh_args");
  if (!own.empty()) words += " " + own;
  set_variable(environment, "PRTE_MCA_plm_ssh_agent", ssh.front());
  set_variable(environment, "PRTE_MCA_plm_ssh_args", words);
  set_variable(environment, "PRTE_MCA_plm_ssh_no_tree_spawn", "1");
  // By its own rule, and where slots may be exceeded, it puts all ranks on the first host.
  set_variable(environment, "PRTE_MCA_rmaps_default_mapping_policy", "slot");
  set_variable(environment, kFolderVariable, keys_.folder().path().string());
  return environment;
}

Outcome MpiMaster::run(const std::vector<std::string>& argv) {
  const ChildId mpirun =
      processes_.start(command_for(outline_, settings_, argv, mpirun_environment()));
  const std::vector<std::string> workers = other_hosts();
  std::erase_if(ready_, [&](const std::string& host) {  // lost since
    return std::ranges::find(workers, host) == workers.end();
  });
  const WatchRequest watched{.hosts = workers, .port = settings_.ssh_port};
  const ChildId watch = processes_.start(
      HelperProcess{.name = "watch workers", .work = [watched] { return watch_hosts(watched); }});

  std::string loss;
  while (!processes_.ended(mpirun) && loss.empty()) {
    processes_.wait(kNever);
    if (processes_.ended(watch)) loss = processes_.collected(watch);
    if (sshd_ && processes_.ended(*sshd_))
      SMP_LOG(debug, "sshd ended: {}", processes_.collected(*sshd_));
  }
  processes_.send(watch, SIGKILL);
  if (loss.empty()) return {.status = *processes_.ended(mpirun), .command = argv};

  SMP_LOG(error, "{}", loss);
  const std::string lost = loss.substr(0, loss.find(' '));
  std::erase(ready_, lost);
  processes_.send(mpirun, SIGTERM);
  const Deadline deadline = Clock::now() + kMpirunEnd;
  while (!processes_.ended(mpirun) && processes_.wait(deadline) != Wake::kDeadline) {
  }
  processes_.send(mpirun, SIGKILL);
  while (!processes_.ended(mpirun)) processes_.wait(kNever);  // it was killed
  throw LostHost(lost, loss + "; its container was stopped or its machine failed, see its log");
}

std::vector<std::string> MpiMaster::other_hosts() const {
  std::vector<std::string> others = choice_.hosts;
  std::erase(others, choice_.current_host);
  return others;
}

std::vector<std::string> MpiMaster::silent_hosts() {
  const WatchRequest request{
      .hosts = other_hosts(), .port = settings_.ssh_port, .period = kLookAgain};
  const ChildId look = processes_.start(
      HelperProcess{.name = "look for lost hosts", .work = [request] {
                      return fmt::to_string(fmt::join(entrypoint::silent_hosts(request), "\n"));
                    }});
  while (!processes_.ended(look)) processes_.wait(kNever);
  const std::string found = processes_.collected(look);
  return found.empty() ? std::vector<std::string>{} : smp::split(found, '\n');
}

void MpiMaster::collect_records() {
  const RecordsRequest request{.ssh_config = keys_.ssh_config(),
                               .into = records_folder(outline_.environment),
                               .environment = settings_.inherited};
  if (request.into.empty() || choice_.cluster_serves_hosts) return;
  std::vector<HostTask> tasks;
  for (const std::string& host : ready_) {
    tasks.push_back({.host = host,
                     .helper = {.name = "records of " + host,
                                .work =
                                    [request, host] {
                                      fetch_records(request, host, kRecords);
                                      return std::string{};
                                    }},
                     .limit = kRecords + kRecordsMargin});
  }
  run_host_tasks(processes_, tasks, most_ssh_at_once(), /*heeds_stop=*/true,
                 [](const std::string& host, const std::string& reason) {
                   SMP_LOG(warning, "The report is without {}: {}", host,
                           reason.empty() ? "its records did not come in time" : reason);
                 });
}

void MpiMaster::announce(const JobStatus& status) {
  if (choice_.cluster_serves_hosts) return;  // nobody there reads it, and the engine ends them
  const StatusDelivery delivery{.ssh_config = keys_.ssh_config(),
                                .master = choice_.master,
                                .cluster_job = settings_.cluster_job,
                                .environment = settings_.inherited};
  const auto warn = [](const std::string& host, const std::string& reason) {
    SMP_LOG(warning, "{}", reason.empty() ? host + " was not told in time" : reason);
  };
  if (processes_.stop_signal() != 0) waiting_.clear();  // every host is stopped
  const bool heeds_stop = !waiting_.empty();
  std::vector<HostTask> tasks;
  for (const std::string& host : ready_) {
    tasks.push_back({.host = host,
                     .helper = {.name = "tell " + host,
                                .work =
                                    [delivery, host, status] {
                                      deliver_job_status(delivery, host, status,
                                                         Clock::now() + kDelivery);
                                      return std::string{};
                                    }},
                     .limit = kDelivery + kDeliveryMargin});
  }
  run_host_tasks(processes_, tasks, most_ssh_at_once(), heeds_stop, warn);

  const std::chrono::milliseconds limit = std::min(kPreparation, settings_.worker_timeout);
  tasks.clear();
  for (const std::string& host : waiting_) {
    SMP_LOG(info, "Waiting for {} to tell it", host);
    tasks.push_back({.host = host,
                     .helper = {.name = "tell " + host,
                                .work =
                                    [request = peer(host), delivery, status, limit] {
                                      tell_peer(request, delivery, status, Clock::now() + limit);
                                      return std::string{};
                                    }},
                     .limit = limit + kDeliveryMargin});
  }
  // Most of them do nothing but wait.
  run_host_tasks(processes_, tasks, tasks.size(), heeds_stop, warn);
}

}  // namespace entrypoint
