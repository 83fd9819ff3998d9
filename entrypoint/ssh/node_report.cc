// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/ssh/node_report.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include <fmt/ranges.h>
#include <poll.h>

#include "entrypoint/process/process_runner.h"
#include "entrypoint/ssh/sshd.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"
#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

constexpr std::string_view kReport = "SMP-NODES/1 report ";
constexpr std::string_view kHosts = "SMP-NODES/1 hosts ";
constexpr std::string_view kRefused = "SMP-NODES/1 refused ";
constexpr std::size_t kLongestReport = 1024;
constexpr std::size_t kLongestHosts = 1 << 20;
constexpr std::chrono::seconds kReachMain{5};
constexpr std::chrono::seconds kOneLine{5};
constexpr std::chrono::milliseconds kNextReport{250};

/// The number of a report; none: `why` says what is wrong with it.
std::optional<int> number_of(std::string_view line, const std::string& job, int count,
                             std::string& why) {
  if (!line.starts_with(kReport)) {
    why = "this is no report";
    return std::nullopt;
  }
  line.remove_prefix(kReport.size());
  const std::size_t blank = std::min(line.find(' '), line.size());
  if (line.substr(0, blank) != job) {
    why = "this is the main node of another job";
    return std::nullopt;
  }
  line.remove_prefix(std::min(blank + 1, line.size()));
  const auto number = smp::parse_number<int>(line);
  if (!number || *number < 1 || *number >= count) {
    why = fmt::format("the job has {} nodes", count);
    return std::nullopt;
  }
  return number;
}

constexpr std::chrono::seconds kReportMargin{15};

}  // namespace

std::vector<std::string> collect_reports(tcp::Listener& listener, const std::string& job, int count,
                                         Deadline deadline) {
  std::map<int, tcp::Connection> nodes;
  std::vector<std::string> hosts(count);
  while (static_cast<int>(nodes.size()) + 1 < count) {
    std::optional<tcp::Connection> connection = listener.accept(deadline);
    if (!connection) {
      std::vector<int> missing;
      for (int i = 1; i < count; ++i) {
        if (!nodes.contains(i)) missing.push_back(i);
      }
      throw smp::HostError(
          "{} of {} nodes have not reported to the main node (counted without it: {}); see the "
          "logs of their containers, and that the security group lets the nodes reach port {} of "
          "each other",
          missing.size(), count, fmt::join(missing, ", "), listener.port());
    }
    try {
      const std::string line = connection->read_line(kLongestReport, Clock::now() + kOneLine);
      std::string why;
      const std::optional<int> number = number_of(line, job, count, why);
      if (!number) {
        SMP_LOG(warning, "{} is not taken for a node: {}", connection->peer().text(), why);
        connection->write(fmt::format("{}{}\n", kRefused, why), Clock::now() + kOneLine);
        continue;
      }
      hosts[0] = connection->own().text();
      hosts[*number] = connection->peer().text();
      nodes.insert_or_assign(*number, std::move(*connection));  // a node that was started again
    } catch (const smp::HostError& error) {
      SMP_LOG(warning, "a connection to the main node fails: {}", error.what());
    }
  }
  for (auto& [number, connection] : nodes) {
    try {
      connection.write(fmt::format("{}{}\n", kHosts, fmt::join(hosts, ",")),
                       Clock::now() + kOneLine);
    } catch (const smp::HostError& error) {
      SMP_LOG(warning, "node {} is not told where the others are: {}", number, error.what());
    }
  }
  return hosts;
}

std::vector<std::string> report_to_main(const std::string& main, int port, const std::string& job,
                                        int number, Deadline deadline) {
  while (true) {
    std::string line;
    try {
      tcp::Connection connection = tcp::Connection::open(tcp::resolve(main, port), kReachMain);
      connection.write(fmt::format("{}{} {}\n", kReport, job, number), Clock::now() + kOneLine);
      line = connection.read_line(kLongestHosts, deadline);
    } catch (const smp::HostError& error) {
      if (Clock::now() < deadline) {
        poll(nullptr, 0, static_cast<int>(kNextReport.count()));
        continue;
      }
      throw smp::HostError("the main node {} does not say where the others are: {}; see its log",
                           main, error.what());
    }
    if (line.starts_with(kHosts)) {
      return smp::split(std::string_view(line).substr(kHosts.size()), ',');
    }
    throw smp::HostError("the main node {} refuses this one: {}", main, line.substr(0, 200));
  }
}

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
      options.worker_timeout + kReportMargin);
  if (!lines) throw smp::HostError("a stop came before all nodes had reported to the main node");
  std::vector<std::string> hosts = smp::split(*lines, '\n');
  if (static_cast<int>(hosts.size()) != cluster.host_count) {
    throw smp::HostError("the main node names {} hosts; expected the {} of the job", hosts.size(),
                         cluster.host_count);
  }
  return hosts;
}

}  // namespace entrypoint
