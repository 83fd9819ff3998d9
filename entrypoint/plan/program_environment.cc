// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/program_environment.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace entrypoint {
namespace {

/// Variables by which a launcher around us knows its ranks: processes of another launcher inside
/// would take themselves for its ranks.
std::vector<std::string> outer_rank_variables(const JobConfig& job) {
  std::vector<std::string> names;
  if (!job.files.cluster || job.files.cluster->cluster != Cluster::kSlurm) return names;
  for (const auto& [name, value] : job.environment) {
    if (name.starts_with("PMIX_") || name.starts_with("PMI_")) names.push_back(name);
  }
  return names;
}

/// For an mpirun inside of what a cluster's engine started.
std::vector<Variable> engine_variables(const JobConfig& job, const RunnerChoice& choice) {
  std::vector<Variable> variables;
  if (!choice.runs_mpirun()) return variables;
  const auto is_dotted = [](const std::string& host) { return host.find('.') != host.npos; };
  if (job.files.hosts_by_cluster && std::ranges::any_of(choice.hosts, is_dotted)) {
    // Or mpirun would cut the names off at the dot, and ssh know no such host.
    variables.push_back({"OMPI_MCA_orte_keep_fqdn_hostnames", "true"});
  }
  if (!job.files.cluster || job.files.cluster->cluster != Cluster::kSlurm) return variables;
  // Open MPI would take the allocation's slots, which this step fills, and start its daemons by
  // srun; by the environment, for the command line is as the documentation shows it.
  for (const auto& [name, value] : {std::pair{"OMPI_MCA_plm", "rsh"}, {"OMPI_MCA_ras", "^slurm"}}) {
    if (smp::value_or(job.environment, name).empty()) variables.push_back({name, value});
  }
  return variables;
}

std::vector<Variable> fabric_variables(const EfaDecision& efa, const smp::Variables& environment) {
  if (!efa.enabled) return {};
  std::vector<Variable> variables = {
      {"FI_PROVIDER", "efa"}, {"NCCL_PROTO", "simple"}, {"FI_EFA_FORK_SAFE", "1"}};
  if (efa.device_rdma) {
    variables.push_back({"FI_EFA_USE_DEVICE_RDMA", "1"});
    variables.push_back({"RDMAV_FORK_SAFE", "1"});
  }
  if (!efa.nccl_plugin.empty()) variables.push_back({"NCCL_NET_PLUGIN", efa.nccl_plugin});
  std::erase_if(variables, [&](const Variable& variable) {
    return !smp::value_or(environment, variable.name).empty();
  });
  return variables;
}

/// mpirun has to see the name that --host gives to this host, NCCL that hosts differ.
std::optional<Variable> preload(const JobConfig& job, const HostFacts& facts) {
  if (facts.hostname_shim.empty()) return std::nullopt;
  const std::string own = smp::value_or(job.environment, "LD_PRELOAD");
  const std::string shim = facts.hostname_shim.string();
  return Variable{"LD_PRELOAD", own.empty() ? shim : shim + ":" + own};
}

void add_thread_share(const EnvironmentInput& input, int processes, ProgramEnvironment& result) {
  if (!smp::value_or(input.job.environment, "OMP_NUM_THREADS").empty()) return;
  const int share = std::max(input.facts.num_cpus / processes, 1);
  set_variable(result.variables, "OMP_NUM_THREADS", std::to_string(share));
  result.notes.push_back(fmt::format(
      "OMP_NUM_THREADS is not set: each rank of this host gets {} ({} CPUs, {} processes)", share,
      input.facts.num_cpus, processes));
}

}  // namespace

std::optional<ExtraCertificates> plan_certificates(const smp::Variables& environment,
                                                   const opt_ml::Layout& layout) {
  const std::string extra = smp::value_or(environment, "SMP_EXTRA_CA_FILE");
  if (extra.empty()) return std::nullopt;
  ExtraCertificates certificates{
      .system = smp::value_or(environment, "SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"),
      .extra = extra,
      .joined = layout.certificates(),
      .variables = {},
      .kept = {}};
  for (const char* name :
       {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE", "PIP_CERT"}) {
    const std::string own = smp::value_or(environment, name);
    const bool replaces = own.empty() || own == certificates.system;
    (replaces ? certificates.variables : certificates.kept).emplace_back(name);
  }
  return certificates;
}

ProgramEnvironment make_program_environment(const EnvironmentInput& input,
                                            const RunnerChoice& choice,
                                            const std::optional<ExtraCertificates>& certificates) {
  ProgramEnvironment result{.job = make_environment(input)};
  result.notes = result.job.notes;
  result.warnings = result.job.warnings;
  result.variables = result.job.table;
  const auto add = [&](const std::vector<Variable>& variables) {
    for (const Variable& variable : variables) {
      set_variable(result.variables, variable.name, variable.value);
    }
  };
  std::ranges::copy(result.job.others, std::back_inserter(result.variables));
  for (const PlannedFile& file : result.job.files) {
    // The inherited variable of that name would be another job's or the user's.
    result.unset.push_back(file.path.filename().string());
  }
  if (choice.starts_ranks()) {
    std::ranges::copy(outer_rank_variables(input.job), std::back_inserter(result.unset));
    add(engine_variables(input.job, choice));
    add_thread_share(input, choice.processes_per_host, result);
  }
  if (auto warning = shared_memory_warning(input.job.environment, input.facts)) {
    result.warnings.push_back(std::move(*warning));
  }
  if (auto variable = preload(input.job, input.facts)) add({std::move(*variable)});
  if (choice.runs_mpirun()) {
    std::ranges::copy_if(result.variables, std::back_inserter(result.host_variables),
                         is_host_variable, &Variable::name);
  } else {
    add(fabric_variables(input.network.efa, input.job.environment));
  }
  if (certificates) {
    for (const std::string& name : certificates->variables) {
      set_variable(result.variables, name, certificates->joined.string());
    }
  }
  return result;
}

}  // namespace entrypoint
