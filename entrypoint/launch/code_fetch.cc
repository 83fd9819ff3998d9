// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/launch/code_fetch.h"

#include <filesystem>

#include "entrypoint/fetch/code_copy.h"
#include "entrypoint/launch/doctor/host_probe.h"
#include "entrypoint/launch/process/helper_result.h"
#include "entrypoint/launch/process/launch_folder.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"

namespace entrypoint::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::hours kLimit{1};

void fetch_local(const CodeSource& source, const fs::path& code,
                 const fetch::TransferSettings& settings) {
  std::error_code error;
  const fs::file_status status = fs::status(source.path, error);
  if (fs::is_directory(status)) {
    if (source.over_existing) fetch::empty_folder(code);
    for (const std::string& warning : fetch::copy_folder(source.path, code)) {
      SMP_LOG(warning, "{}", warning);
    }
    return;
  }
  if (!fs::is_regular_file(status)) {
    throw smp::ConfigError(
        "sagemaker_submit_directory \"{}\": {} is not there, nor a folder or file; correct it, or "
        "leave it out and put the code into {}",
        source.location, source.path.string(), code.string());
  }
  fetch::load_transfer(launcher_path(), settings)->unpack_file(source.path, code);
}

}  // namespace

std::optional<Outcome> fetch_code(const LaunchPlan& plan, const JobSettings& settings,
                                  ProcessRunner& runner) {
  const CodeSource& source = plan.code;
  if (!source.is_fetched()) return std::nullopt;
  const fs::path& code = plan.working_directory;
  SMP_LOG(info, "Fetching code from {} into {}", source.location, code.string());
  const LaunchFolder scratch;
  const auto work = [&]() -> std::string {
    if (source.kind == CodeSource::Kind::kLocal) {
      fetch_local(source, code, settings.transfer);
    } else {
      fetch::load_transfer(launcher_path(), settings.transfer)
          ->unpack_object(source.object, code, scratch.file("sourcedir.tar.gz"));
    }
    return {};
  };
  if (run_helper(runner, "fetching the code", work, kLimit)) return std::nullopt;
  return Outcome{.status = stopped_status(runner), .command = plan.user_command};
}

}  // namespace entrypoint::launch
