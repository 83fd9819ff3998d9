// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/launch/host_gathering.h"

#include <csignal>
#include <sstream>

#include <fmt/ranges.h>

#include "entrypoint/launch/cluster/node_report.h"
#include "entrypoint/launch/cluster/sshd.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"

namespace entrypoint::launch {
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
  const ChildId helper = runner.start(HelperProcess{
      .name = "gather hosts", .work = [cluster, port, deadline, main, job] {
        if (!main) {
          return fmt::format("{}", fmt::join(report_to_main(cluster.main_host, port, job,
                                                            *cluster.host_number, deadline),
                                             "\n"));
        }
        tcp::Listener listener = listen_at_ssh_port({}, port);
        return fmt::format(
            "{}", fmt::join(collect_reports(listener, job, cluster.host_count, deadline), "\n"));
      }});
  while (!runner.ended(helper) && runner.stop_signal() == 0) {
    if (runner.wait(deadline + kMargin) == Wake::kDeadline) break;
  }
  const auto ended = runner.ended(helper);
  if (!ended) runner.send(helper, SIGKILL);
  if (!ended && runner.stop_signal() != 0) {
    throw smp::HostError("a stop came before all nodes had reported to the main node");
  }
  if (!ended || !ended->ok()) {
    throw smp::HostError("{}", ended ? runner.collected(helper) : "the nodes' reports hang");
  }
  std::vector<std::string> hosts;
  std::istringstream lines(runner.collected(helper));
  for (std::string line; std::getline(lines, line);) hosts.push_back(line);
  if (static_cast<int>(hosts.size()) != cluster.host_count) {
    throw smp::HostError("the main node names {} hosts; expected the {} of the job", hosts.size(),
                         cluster.host_count);
  }
  return hosts;
}

}  // namespace entrypoint::launch
