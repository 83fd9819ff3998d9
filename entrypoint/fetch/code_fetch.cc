// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/fetch/code_fetch.h"

#include <system_error>

#include <fmt/format.h>

#include "entrypoint/process/launch_folder.h"
#include "entrypoint/process/process_runner.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"

namespace entrypoint::fetch {
namespace {

namespace fs = std::filesystem;

// Links to a parent would go on for ever; no source tree is nearly as deep.
constexpr int kDeepest = 64;

class Copier {
 public:
  explicit Copier(std::vector<std::string>& warnings) : warnings_(warnings) {}

  void copy(const fs::path& from, const fs::path& to, int depth) {
    std::error_code error;
    const fs::file_status status = fs::status(from, error);
    if (fs::is_regular_file(status)) {
      copy_file(from, to);
    } else if (!fs::is_directory(status)) {
      warnings_.push_back(fmt::format(
          "{}: left out: {}", from.string(),
          fs::exists(status) ? "a device, FIFO or socket" : "a link that leads nowhere"));
    } else if (depth == kDeepest) {
      warnings_.push_back(
          fmt::format("{}: left out: {} folders deep, a circle of links?", from.string(), depth));
    } else {
      copy_entries(from, to, depth);
    }
  }

  static void copy_file(const fs::path& from, const fs::path& to) {
    try {
      fs::copy_file(from, to, fs::copy_options::overwrite_existing);
      fs::last_write_time(to, fs::last_write_time(from));
    } catch (const fs::filesystem_error& error) {
      throw smp::HostError("copying code: {}", error.what());
    }
  }

 private:
  void copy_entries(const fs::path& from, const fs::path& to, int depth) {
    try {
      fs::create_directories(to);
      for (const auto& entry : fs::directory_iterator(from)) {
        copy(entry.path(), to / entry.path().filename(), depth + 1);
      }
      if (depth > 0) fs::permissions(to, fs::status(from).permissions());
    } catch (const fs::filesystem_error& error) {
      throw smp::HostError("copying code: {}", error.what());
    }
  }

  std::vector<std::string>& warnings_;
};

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
  if (!load_transfer(settings)->unpack_file(source.path, code)) {
    Copier::copy_file(source.path, code / source.path.filename());
  }
}

}  // namespace

std::vector<std::string> copy_folder(const fs::path& from, const fs::path& to) {
  std::vector<std::string> warnings;
  Copier(warnings).copy(from, to, 0);
  return warnings;
}

void empty_folder(const fs::path& folder) {
  if (fs::is_symlink(folder)) {
    throw smp::ConfigError(
        "SM_LAUNCH_CODE=replace: {} is a link to {}, whose files would be removed; make the job "
        "tree with --copy, or without --code",
        folder.string(), fs::read_symlink(folder).string());
  }
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    fs::remove_all(entry.path(), error);
    if (error) throw smp::HostError("{}: {}", entry.path().string(), error.message());
  }
}

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
