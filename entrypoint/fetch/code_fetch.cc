// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/fetch/code_fetch.h"

#include "entrypoint/fetch/code_copy.h"
#include "entrypoint/process/helper_result.h"
#include "entrypoint/process/launch_folder.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"

namespace entrypoint::fetch {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::hours kLimit{1};

void fetch_local(const CodeSource& source, const TransferSettings& settings) {
  const fs::path& code = source.folder;
  std::error_code error;
  const fs::file_status status = fs::status(source.path, error);
  if (fs::is_directory(status)) {
    if (source.over_existing) empty_folder(code);
    for (const std::string& warning : copy_folder(source.path, code)) {
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
  load_transfer(settings)->unpack_file(source.path, code);
}

}  // namespace

bool fetch_code(const CodeSource& source, const TransferSettings& settings, ProcessRunner& runner) {
  SMP_LOG(info, "Fetching code from {} into {}", source.location, source.folder.string());
  const LaunchFolder scratch;
  const auto work = [&]() -> std::string {
    if (source.kind == CodeSource::Kind::kLocal) {
      fetch_local(source, settings);
    } else {
      load_transfer(settings)->unpack_object(source.object, source.folder,
                                             scratch.file("sourcedir.tar.gz"));
    }
    return {};
  };
  return run_helper(runner, "fetching the code", work, kLimit).has_value();
}

}  // namespace entrypoint::fetch
