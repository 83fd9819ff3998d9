// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/ssh/host_records.h"

#include <system_error>

#include <fmt/format.h>

#include "entrypoint/config/shell_text.h"
#include "entrypoint/process/spawn.h"
#include "entrypoint/ssh/ssh_client.h"
#include "entrypoint/ssh/sshd.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"

namespace entrypoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLink = "records";

}  // namespace

fs::path records_folder(const ProgramEnvironment& environment) {
  const std::string* folder = find_variable(environment.variables, "SMP_RECORDS");
  return folder == nullptr ? fs::path() : fs::path(*folder);
}

void offer_records(const fs::path& folder, const fs::path& records) {
  if (records.empty()) return;
  std::error_code failed;
  fs::remove(folder / kLink, failed);
  fs::create_directory_symlink(records, folder / kLink, failed);
  if (failed) SMP_LOG(debug, "{}: {}", (folder / kLink).string(), failed.message());
}

void fetch_records(const RecordsRequest& request, const std::string& host,
                   std::chrono::milliseconds limit) {
  std::string ssh;
  for (const std::string& word : ssh_command(request.ssh_config)) ssh += shell_quote(word) + " ";
  // The other host's sshd tells its sessions where the job's folder is there.
  const std::string there = fmt::format("tar -C \"${{{}}}/{}/\" -czf - .", kFolderVariable, kLink);
  const std::string line =
      fmt::format("set -o pipefail; {}{} {} | tar -C {} -xzf - --no-same-owner", ssh, host,
                  shell_quote(there), shell_quote(request.into.string()));
  const Completed done =
      run_command({.argv = {"/bin/bash", "-c", line}, .environment = request.environment}, limit);
  if (done.status.ok()) return;
  throw smp::HostError("the records of {} do not come: {}", host,
                       done.timed_out ? "no answer" : done.output);
}

}  // namespace entrypoint
