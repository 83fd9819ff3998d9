// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/runners/host_tasks.h"

#include <algorithm>
#include <csignal>
#include <thread>

namespace entrypoint {
namespace {

// A login calculates for a tenth of a second at either end, and may take some seconds in all.
constexpr std::size_t kOfProcessor = 8;

struct Running {
  std::string host;
  ChildId helper;
  Deadline deadline;
};

}  // namespace

std::size_t most_ssh_at_once() {
  return kOfProcessor * std::max(1U, std::thread::hardware_concurrency());
}

void run_host_tasks(
    ProcessRunner& processes, const std::vector<HostTask>& tasks, std::size_t at_once,
    bool heeds_stop,
    const std::function<void(const std::string& host, const std::string& reason)>& failed) {
  std::vector<Running> running;
  auto next = tasks.begin();
  const auto stops = [&] { return heeds_stop && processes.stop_signal() != 0; };
  const auto settle = [&](const Running& one) {
    const auto ended = processes.ended(one.helper);
    if (!ended && Clock::now() < one.deadline && !stops()) return false;
    if (!ended) processes.send(one.helper, SIGKILL);
    if (!ended || !ended->ok()) {
      failed(one.host, ended ? processes.collected(one.helper) : std::string{});
    }
    return true;
  };
  while (true) {
    for (; next != tasks.end() && running.size() < at_once && !stops(); ++next) {
      running.push_back({.host = next->host,
                         .helper = processes.start(next->helper),
                         .deadline = Clock::now() + next->limit});
    }
    if (running.empty()) break;
    processes.wait(std::ranges::min(running, {}, &Running::deadline).deadline);
    std::erase_if(running, settle);
  }
  for (; next != tasks.end(); ++next) failed(next->host, {});
}

}  // namespace entrypoint
