// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/process/process_runner.h"

#include <csignal>
#include <exception>
#include <string_view>
#include <utility>

#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

constexpr std::string_view kDone = "done\n";
constexpr std::string_view kConfigError = "config\n";
constexpr std::string_view kHostError = "host\n";

}  // namespace

std::function<std::string()> reporting(std::function<std::string()> work) {
  return [work = std::move(work)]() -> std::string {
    try {
      return std::string(kDone) + work();
    } catch (const smp::ConfigError& error) {
      return std::string(kConfigError) + error.what();
    } catch (const std::exception& error) {
      return std::string(kHostError) + error.what();
    }
  };
}

std::string result_of(const std::string& name, const std::optional<ExitStatus>& ended,
                      const std::string& collected) {
  const std::string_view text = collected;
  if (text.starts_with(kDone)) return std::string(text.substr(kDone.size()));
  if (text.starts_with(kConfigError)) {
    throw smp::ConfigError("{}", text.substr(kConfigError.size()));
  }
  if (text.starts_with(kHostError)) throw smp::HostError("{}", text.substr(kHostError.size()));
  throw smp::HostError("{}: ended without a result (exit {})", name,
                       ended ? ended->failure_code() : 0);
}

std::optional<std::string> run_helper(ProcessRunner& runner, const std::string& name,
                                      std::function<std::string()> work,
                                      std::chrono::milliseconds limit) {
  const Deadline deadline = Clock::now() + limit;
  const ChildId helper =
      runner.start(HelperProcess{.name = name, .work = reporting(std::move(work))});
  while (!runner.ended(helper) && runner.stop_signal() == 0) {
    if (runner.wait(deadline) == Wake::kDeadline) break;
  }
  if (!runner.ended(helper)) runner.send(helper, SIGKILL);
  if (runner.stop_signal() != 0) return std::nullopt;
  if (!runner.ended(helper)) {
    throw smp::HostError("{}: not done after {} s", name, limit.count() / 1000);
  }
  return result_of(name, runner.ended(helper), runner.collected(helper));
}

}  // namespace entrypoint
