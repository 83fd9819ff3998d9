// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/ssh/host_gathering.h"

#include <fmt/ranges.h>

#include "entrypoint/process/helper_result.h"
#include "entrypoint/ssh/node_report.h"
#include "entrypoint/ssh/sshd.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"
#include "smp_runtime/core/split.h"

namespace entrypoint {
namespace {

constexpr std::chrono::seconds kMargin{15};

}  // namespace

std::vector<std::string> gather_hosts(const ClusterJob& cluster, const LaunchOptions& options,
                                      ProcessRunner& runner) {
  const int port = options.ssh_port != 0 ? options.ssh_port : default_ssh_port();
  const Deadline deadline = Clock::now() + options.worker_timeout;
  const bool main = cluster.main_host.empty();
  SMP_LOG(info, "{}: {}", cluster.title(),
          main ? "waiting for the other nodes to report"
               : fmt::format("reporting to the main node {}", cluster.main_host));
  // The name of the job goes over the network as one word.
  const std::string job = cluster.name.substr(cluster.name.rfind(' ') + 1);
  const auto find_hosts = [&] {
    if (!main) {
      return report_to_main(cluster.main_host, port, job, *cluster.host_number, deadline);
    }
    tcp::Listener listener = listen_at_ssh_port({}, port);
    return collect_reports(listener, job, cluster.host_count, deadline);
  };
  const auto lines = run_helper(
      runner, "the nodes' reports",
      [&] { return fmt::format("{}", fmt::join(find_hosts(), "\n")); },
      options.worker_timeout + kMargin);
  if (!lines) throw smp::HostError("a stop came before all nodes had reported to the main node");
  std::vector<std::string> hosts = smp::split(*lines, '\n');
  if (static_cast<int>(hosts.size()) != cluster.host_count) {
    throw smp::HostError("the main node names {} hosts; expected the {} of the job", hosts.size(),
                         cluster.host_count);
  }
  return hosts;
}

}  // namespace entrypoint
