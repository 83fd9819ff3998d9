// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/ssh/node_report.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <string_view>

#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>

#include "entrypoint/process/process_runner.h"
#include "entrypoint/ssh/sshd.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"
#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

constexpr std::string_view kMain = "SMP-NODES/2 main";
constexpr std::string_view kReport = "SMP-NODES/2 report ";
constexpr std::string_view kHosts = "SMP-NODES/2 hosts ";
constexpr std::string_view kRefused = "SMP-NODES/2 refused ";
constexpr std::size_t kLongestReport = 1024;
constexpr std::size_t kLongestHosts = 1 << 20;
constexpr std::chrono::seconds kReachMain{5};
constexpr std::chrono::seconds kOneLine{5};
constexpr std::chrono::milliseconds kNextReport{250};

/// A node that waits says nothing more.
bool has_ended(Conversation& node) {
  char byte = 0;
  const ssize_t count = recv(node.connection().fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
}

constexpr std::chrono::seconds kReportMargin{15};

}  // namespace

std::optional<int> parse_report(std::string_view line, const NodeJob& job, std::string& why) {
  if (!line.starts_with(kReport)) {
    why = "this is no report";
    return std::nullopt;
  }
  line.remove_prefix(kReport.size());
  const std::size_t blank = std::min(line.find(' '), line.size());
  if (line.substr(0, blank) != job.id) {
    why = "this is the main node of another job";
    return std::nullopt;
  }
  line.remove_prefix(std::min(blank + 1, line.size()));
  const auto number = smp::parse_number<int>(line);
  if (!number || *number < 1 || *number >= job.count) {
    why = fmt::format("the job has {} nodes", job.count);
    return std::nullopt;
  }
  return number;
}

std::vector<std::string> collect_reports(tcp::Listener& listener, const NodeJob& job,
                                         Deadline deadline) {
  std::map<int, Conversation> nodes;
  std::vector<std::string> hosts(job.count);
  tcp::Callers::Rules rules = Conversation::rules(kLongestReport, kOneLine);
  rules.greet = [&](const tcp::Connection&) {
    return Conversation::greeting(kMain, Side::kMaster, job.secret);
  };
  tcp::Callers callers(listener, std::move(rules));
  while (static_cast<int>(nodes.size()) + 1 < job.count) {
    std::optional<tcp::Callers::Caller> caller = callers.next(deadline);
    if (!caller) {
      std::vector<int> missing;
      for (int i = 1; i < job.count; ++i) {
        if (!nodes.contains(i)) missing.push_back(i);
      }
      throw smp::HostError(
          "{} of {} nodes have not reported to the main node (counted without it: {}); see the "
          "logs of their containers, and that the security group lets the nodes reach port {} of "
          "each other",
          missing.size(), job.count, fmt::join(missing, ", "), listener.port());
    }
    try {
      Conversation node(std::move(*caller), Side::kMaster, job.secret);
      std::string why;
      const auto number =
          parse_report(node.hear(kLongestReport, Clock::now() + kOneLine), job, why);
      // One that has proved itself may come again, whatever its earlier connection says.
      if (number && !job.secret && nodes.contains(*number) && !has_ended(nodes.at(*number))) {
        why = fmt::format("node {} has reported and is still there", *number);
      }
      if (!why.empty()) {
        SMP_LOG(warning, "{} is not taken for a node: {}", node.connection().peer().text(), why);
        node.say(fmt::format("{}{}", kRefused, why), Clock::now() + kOneLine);
        continue;
      }
      hosts[0] = node.connection().own().text();
      hosts[*number] = node.connection().peer().text();
      nodes.insert_or_assign(*number, std::move(node));
    } catch (const smp::HostError& error) {
      SMP_LOG(warning, "a connection to the main node fails: {}", error.what());
    }
  }
  for (auto& [number, node] : nodes) {
    try {
      node.say(fmt::format("{}{}", kHosts, fmt::join(hosts, ",")), Clock::now() + kOneLine);
    } catch (const smp::HostError& error) {
      SMP_LOG(warning, "node {} is not told where the others are: {}", number, error.what());
    }
  }
  return hosts;
}

std::vector<std::string> report_to_main(const std::string& main, int port, const NodeJob& job,
                                        int number, Deadline deadline) {
  while (true) {
    std::string line;
    try {
      Conversation talk(tcp::Connection::open(tcp::resolve(main, port), kReachMain), Side::kWorker,
                        job.secret);
      if (talk.hear(kLongestReport, Clock::now() + kOneLine) != kMain) {
        throw smp::HostError("{} port {} is no main node yet", main, port);
      }
      talk.say(fmt::format("{}{} {}", kReport, job.id, number), Clock::now() + kOneLine);
      line = talk.hear(kLongestHosts, deadline);
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
                                      const std::optional<smp::JobSecret>& secret,
                                      ProcessRunner& runner) {
  const int port = options.ssh_port != 0 ? options.ssh_port : default_ssh_port();
  const Deadline deadline = Clock::now() + options.worker_timeout;
  const bool main = cluster.main_host.empty();
  SMP_LOG(info, "{}: {}", cluster.title(),
          main ? "waiting for the other nodes to report"
               : fmt::format("reporting to the main node {}", cluster.main_host));
  // The name of the job goes over the network as one word.
  const NodeJob job{.id = cluster.name.substr(cluster.name.rfind(' ') + 1),
                    .count = cluster.host_count,
                    .secret = secret};
  const auto find_hosts = [&] {
    if (!main) {
      return report_to_main(cluster.main_host, port, job, *cluster.host_number, deadline);
    }
    tcp::Listener listener = listen_at_ssh_port({}, port);
    return collect_reports(listener, job, deadline);
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
