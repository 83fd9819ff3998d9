// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/cluster/rendezvous.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "smp_runtime/cluster/cluster_job.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/text.h"

namespace smp::cluster {
namespace {

constexpr std::string_view kAddress = "MASTER_ADDR";
constexpr std::string_view kPort = "MASTER_PORT";
constexpr int kLastPort = 65535;

std::optional<int> master_port(const Variables& variables) {
  const auto entry = variables.find(kPort);
  if (entry == variables.end()) return std::nullopt;
  const auto port = parse_number<int>(entry->second);
  if (!port || *port < 1 || *port > kLastPort) {
    throw ConfigError("{} is \"{}\"; expected a port from 1 to {}", kPort, entry->second,
                      kLastPort);
  }
  return port;
}

bool has_foreign_store(const Variables& variables) {
  const auto entry = variables.find("TORCHELASTIC_USE_AGENT_STORE");
  return entry != variables.end() &&
         std::ranges::equal(entry->second, std::string_view("true"), {},
                            [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
}

}  // namespace

bool is_told(const RendezvousRequest& request) {
  const Variables& variables = request.variables;
  if (variables.contains(kAddress)) return request.port || variables.contains(kPort);
  // A step's first node has rank 0. Asking MPI would end the process: started by srun without
  // --mpi=pmix, Open MPI aborts.
  return !variables.contains("OMPI_COMM_WORLD_RANK") && !first_host(variables).empty();
}

Rendezvous plan_rendezvous(const LaunchRanks& ranks, const RendezvousRequest& request) {
  const Variables& variables = request.variables;
  const auto address = variables.find(kAddress);
  std::optional<int> port = master_port(variables);
  if (has_foreign_store(variables) && port && address != variables.end()) {
    const auto start = variables.find("TORCHELASTIC_RESTART_COUNT");
    return {address->second, *port, true,
            "smp/start/" + (start == variables.end() ? "0" : start->second)};
  }
  if (request.port) port = request.port;
  if (!port) port = request.have_mpi ? 0 : derived_port(variables, request.number);
  if (!port) {
    throw ConfigError("the launcher gave ranks but neither {} nor a job number; export {}", kPort,
                      kPort);
  }
  if (address != variables.end()) return {address->second, *port};
  if (ranks.local_size == ranks.size) return {"127.0.0.1", *port};
  if (request.have_mpi) return {"", *port};
  if (!request.hosts.empty()) return {request.hosts.front(), *port};
  if (std::string host = first_host(variables); !host.empty()) return {std::move(host), *port};
  throw ConfigError(
      "{} started {} ranks on several hosts, but nothing says where rank 0 is; export {} and {}",
      ranks.source, ranks.size, kAddress, kPort);
}

}  // namespace smp::cluster
