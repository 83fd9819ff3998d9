// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/doctor/efa_query.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "entrypoint/process/spawn.h"

namespace entrypoint {
namespace {

/// None: it gave no answer in time.
std::optional<std::vector<std::string>> providers_of(std::vector<std::string> argv,
                                                     std::chrono::seconds limit) {
  std::vector<std::string> environment = current_environment();
  // The job's choice of a provider would hide the others from the question.
  std::erase_if(environment,
                [](const std::string& variable) { return variable.starts_with("FI_PROVIDER="); });
  const Completed asked =
      run_command({.argv = std::move(argv), .environment = std::move(environment)}, limit);
  if (asked.timed_out) return std::nullopt;
  // It ends with an error where it finds none.
  return asked.status.ok() ? listed_providers(asked.output) : std::vector<std::string>{};
}

}  // namespace

void ask_libfabric(const std::string& path, EfaProbe& probe, std::chrono::seconds limit) {
  const std::string program = find_program("fi_info", path).string();
  if (program.empty()) return;
  const auto found = providers_of({program, "-p", "efa"}, limit);
  if (!found) return;
  probe.provider = std::ranges::find(*found, "efa") != found->end();
  if (!*probe.provider) probe.providers = providers_of({program}, limit).value_or(probe.providers);
}

std::string choose_nccl_plugin(const EnvironmentMap& environment) {
  const std::string own = value_or(environment, "NCCL_NET_PLUGIN");
  return own.empty() ? find_nccl_plugin(value_or(environment, "LD_LIBRARY_PATH")).string() : own;
}

}  // namespace entrypoint
