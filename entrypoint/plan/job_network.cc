// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/job_network.h"

#include <algorithm>

#include <fmt/format.h>

namespace entrypoint {
namespace {

bool contains(const std::vector<std::string>& texts, const std::string& text) {
  return std::ranges::find(texts, text) != texts.end();
}

void choose_interfaces(const JobConfig& job, const HostFacts& facts, bool several_hosts,
                       JobNetwork& network) {
  const InterfaceChoice choice =
      choose_interface({.current_host = job.current_host(),
                        .configured = job.resources.network_interface_name,
                        .interfaces = facts.interfaces,
                        .route = facts.route_interface,
                        .several_hosts = several_hosts});
  network.interface_name = choice.name;
  if (!choice.warning.empty()) {
    (several_hosts ? network.warnings : network.notes).push_back(choice.warning);
  }
  network.gloo_interface = choice.name;
  const auto loopback = std::ranges::find(facts.interfaces, true, &Interface::loopback);
  if (choice.name.empty() && loopback != facts.interfaces.end()) {
    network.gloo_interface = loopback->name;
  }
}

}  // namespace

EfaSwitch efa_switch(EfaPolicy policy) {
  switch (policy) {
    case EfaPolicy::kOn:
      return EfaSwitch::kOn;
    case EfaPolicy::kOff:
      return EfaSwitch::kOff;
    case EfaPolicy::kAuto:
      break;
  }
  return EfaSwitch::kAuto;
}

std::vector<std::string> fabric_instance_types(const JobConfig& job, Runner runner) {
  const Distribution& distribution = job.distribution;
  std::vector<std::string> types = {job.resources.current_instance_type};
  if (runner == Runner::kSmddp && !distribution.instance_type.empty()) {
    types.front() = distribution.instance_type;
  }
  for (const opt_ml::InstanceGroup& group : job.resources.groups) {
    const bool is_other =
        group.name != job.resources.current_group_name && contains(distribution.groups, group.name);
    if (is_other && !group.instance_type.empty() && !contains(types, group.instance_type)) {
      types.push_back(group.instance_type);
    }
  }
  return types;
}

JobNetwork choose_network(const JobConfig& job, const HostFacts& facts,
                          const RunnerChoice& choice) {
  JobNetwork network;
  const bool several_hosts = choice.hosts.size() > 1;
  choose_interfaces(job, facts, several_hosts, network);

  network.master_address = job.master;
  if (!several_hosts && !facts.current_host_resolves) {
    network.master_address = "127.0.0.1";
    network.notes.push_back(fmt::format("host name {} has no address here: MASTER_ADDR is {}",
                                        job.master, network.master_address));
  }
  if (choice.runner == Runner::kProcess || choice.runner == Runner::kModule) return network;
  network.efa =
      decide_efa(fabric_instance_types(job, choice.runner), facts.efa, efa_switch(job.knobs.efa));
  network.notes.push_back(network.efa.reason);
  network.warnings.insert(network.warnings.end(), network.efa.warnings.begin(),
                          network.efa.warnings.end());
  return network;
}

}  // namespace entrypoint
