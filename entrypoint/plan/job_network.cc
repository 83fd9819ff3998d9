// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/job_network.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

bool contains(const std::vector<std::string>& texts, const std::string& text) {
  return std::ranges::find(texts, text) != texts.end();
}

void choose_interfaces(const JobConfig& job, const HostFacts& facts, bool several_hosts,
                       JobNetwork& network) {
  const InterfaceChoice choice =
      choose_interface({.current_host = job.current_host(),
                        .configured = job.files.resources.network_interface_name,
                        .interfaces = facts.interfaces,
                        .route = facts.route_interface,
                        .several_hosts = several_hosts});
  network.interface_name = choice.name;
  if (!choice.note.empty()) network.notes.push_back(choice.note);
  // An interface that no file names is as good as another one.
  if (!choice.warning.empty() && !job.files.hosts_by_cluster) {
    (several_hosts ? network.warnings : network.notes).push_back(choice.warning);
  }
  network.gloo_interface = choice.name;
  const auto loopback = std::ranges::find(facts.interfaces, true, &Interface::loopback);
  if (choice.name.empty() && loopback != facts.interfaces.end()) {
    network.gloo_interface = loopback->name;
  }
}

/// mpirun would end with words about a regular expression.
void check_host_names(const std::vector<std::string>& hosts) {
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-";
  for (const std::string& host : hosts) {
    const std::size_t found = host.find_first_not_of(kAllowed);
    if (found == std::string::npos) continue;
    throw smp::ConfigError(
        "host name \"{}\": mpirun takes letters, digits, dots and hyphens, and no '{}'; give the "
        "host another name (Docker Compose: hostname and a network alias), or start the job by "
        "torchrun",
        host, host[found]);
  }
}

/// Seen with Open MPI 5.0.7 (PRRTE 3.0.8).
void check_mpirun_and_ipv6(const HostFacts& facts, JobNetwork& network) {
  const auto chosen = std::ranges::find(facts.interfaces, network.interface_name, &Interface::name);
  if (!facts.has_prterun || chosen == facts.interfaces.end()) return;
  if (chosen->addresses.empty()) return;
  const auto is_ipv6 = [](const std::string& address) { return address.find(':') != address.npos; };
  if (!std::ranges::all_of(chosen->addresses, is_ipv6)) return;
  network.warnings.push_back(
      fmt::format("network interface \"{}\" has addresses of IPv6 alone, where the mpirun of Open "
                  "MPI 5 may end by SIGSEGV: if it does, start the job by torchrun, or use Open "
                  "MPI 4.1",
                  network.interface_name));
}

/// By what hosts and ranks know each other.
void settle_trust(const JobConfig& job, const RunnerChoice& choice, JobNetwork& network) {
  if (!choice.starts_ranks()) return;  // processes that know nothing of each other
  if (job.files.secret) {
    network.notes.push_back(
        fmt::format("hosts and ranks prove by {} that they are of the job",
                    job.files.secret_key.empty() ? "SMP_JOB_SECRET" : "the mounted key"));
    return;
  }
  if (job.options.auth == AuthPolicy::kRequire) {
    throw smp::ConfigError(
        "SM_LAUNCH_AUTH=require: the {} hosts of the job have nothing to prove by that they are of "
        "it; give all of them the same SMP_JOB_SECRET or SMP_JOB_SECRET_FILE, or mount a key pair "
        "(SM_LAUNCH_SSH_KEY)",
        choice.hosts.size());
  }
  network.notes.push_back(
      choice.spans_hosts()
          ? "the network is trusted until hosts have exchanged keys: they have no SMP_JOB_SECRET"
          : "the network between hosts is trusted: they have no SMP_JOB_SECRET");
}

/// Servers of the job on this host.
void list_servers(const JobConfig& job, const HostFacts& facts, const RunnerChoice& choice,
                  JobNetwork& network) {
  if (!choice.starts_ranks()) return;
  if (choice.spans_hosts() && !choice.cluster_serves_hosts) {
    const auto chosen =
        std::ranges::find(facts.interfaces, network.interface_name, &Interface::name);
    network.listens.push_back(
        fmt::format("sshd of the job: {}, port {}",
                    chosen == facts.interfaces.end()
                        ? "all addresses"
                        : fmt::to_string(fmt::join(chosen->listen_addresses(), ", ")),
                    job.options.ssh_port != 0 ? fmt::to_string(job.options.ssh_port)
                                              : "22, or 2222 for users who may not"));
  }
  const bool alone = choice.hosts.size() == 1 && !choice.cluster_serves_hosts;
  network.listens.push_back(
      fmt::format("ranks: {}, free ports",
                  alone ? "127.0.0.1" : fmt::format("the address towards {}", job.hosts.master)));
  if (choice.kind == Runner::kTorchrun) {
    network.listens.push_back(
        "torchrun: all addresses, as PyTorch has it, the port of the command");
  } else {
    network.listens.push_back("mpirun and MPI: all addresses, as Open MPI has it, free ports");
  }
}

}  // namespace

std::vector<std::string> fabric_instance_types(const JobConfig& job, Runner runner) {
  const Distribution& distribution = job.distribution;
  std::vector<std::string> types = {job.files.resources.current_instance_type};
  if (runner == Runner::kSmddp && !distribution.instance_type.empty()) {
    types.front() = distribution.instance_type;
  }
  for (const opt_ml::InstanceGroup& group : job.files.resources.groups) {
    const bool is_other = group.name != job.files.resources.current_group_name &&
                          contains(job.hosts.groups, group.name);
    if (is_other && !group.instance_type.empty() && !contains(types, group.instance_type)) {
      types.push_back(group.instance_type);
    }
  }
  return types;
}

JobNetwork choose_network(const JobConfig& job, const HostFacts& facts,
                          const RunnerChoice& choice) {
  JobNetwork network;
  if (choice.runs_mpirun()) check_host_names(choice.hosts);
  const bool several_hosts = choice.hosts.size() > 1 || job.cluster_serves_hosts();
  choose_interfaces(job, facts, several_hosts, network);
  if (several_hosts) settle_trust(job, choice, network);
  list_servers(job, facts, choice, network);
  if (choice.runs_mpirun() && several_hosts) check_mpirun_and_ipv6(facts, network);

  network.master_address = job.hosts.master;
  if (!several_hosts && !facts.current_host_resolves) {
    network.master_address = "127.0.0.1";
    network.notes.push_back(fmt::format("host name {} has no address here: MASTER_ADDR is {}",
                                        job.hosts.master, network.master_address));
  }
  const EfaSwitch wanted = job.options.efa;
  const bool plain = choice.kind == Runner::kProcess || choice.kind == Runner::kTrainingModule;
  if (plain && wanted != EfaSwitch::kOn) return network;  // nobody asked them to talk
  network.efa = decide_efa(fabric_instance_types(job, choice.kind), facts.efa, wanted);
  network.notes.push_back(network.efa.reason);
  if (const auto& problem = network.efa.problem) {
    if (problem->loss == EfaLoss::kRefused) throw smp::ConfigError(problem->text());
    network.warnings.push_back(problem->text());
  }
  return network;
}

}  // namespace entrypoint
