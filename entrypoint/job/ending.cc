// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/job/ending.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include "entrypoint/job/failure/failure_text.h"
#include "opt_ml_layout/outputs.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"

namespace entrypoint {
namespace {

int exit_code_of(const ExitStatus& status, int stop_signal, ExitPolicy policy) {
  if (status.ok()) return 0;
  if (stop_signal != 0) return 128 + stop_signal;
  return policy == ExitPolicy::kPropagate ? status.shell_code() : 1;
}

std::optional<bool> ran_out_of_memory(std::optional<long> before) {
  const std::optional<long> now = oom_kills();
  if (!before || !now) return std::nullopt;
  return *now > *before;
}

std::string size_text(std::uintmax_t bytes) {
  constexpr double kKilo = 1000.0;
  double value = static_cast<double>(bytes);
  for (const char* unit : {"bytes", "kB", "MB"}) {
    if (value < kKilo) return fmt::format("{:.3g} {}", value, unit);
    value /= kKilo;
  }
  return fmt::format("{:.1f} GB", value);
}

std::optional<long> counter(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string key;
  long value = 0;
  while (file >> key >> value) {
    if (key == "oom_kill") return value;
  }
  return std::nullopt;
}

}  // namespace

bool is_gloo_abort(const ExitStatus& status, const OutputRecord& record) {
  constexpr std::string_view kLastWords =
      "terminate called after throwing an instance of 'gloo::EnforceNotMet'";
  if (status.shell_code() != 128 + SIGABRT) return false;
  return std::ranges::any_of(record.telling_lines(), [&](const std::string& line) {
    return line.find(kLastWords) != std::string::npos;
  });
}

JobStatus status_of(const Outcome& outcome, const Supervisor& processes, const OutputRecord& output,
                    const EndContext& context) {
  if (outcome.followed) return *outcome.followed;
  const int exit_code = exit_code_of(outcome.status, processes.stop_signal(), context.policy);
  if (exit_code == 0) return {};
  const Failure failure{
      .error_class = outcome.error_class,
      .status = outcome.status,
      .stop_signal = processes.stop_signal(),
      .out_of_memory = ran_out_of_memory(context.oom_kills_before),
      .is_mpirun = context.runs_mpirun && outcome.error_class == Failure{}.error_class,
      .shared_memory = context.shared_memory,
      .full_disks = free_space_text(free_space(context.folders), kFullBelow),
      .debugger = context.debugger,
      .channels = context.channels,
      .module = context.module,
      .command = fmt::to_string(fmt::join(context.secrets.mask(outcome.command), " "))};
  const auto host_of = [&](int rank) {
    // The map that mpirun printed counts before the plan.
    const std::string host = processes.rank_tags().host_of(rank);
    const auto place = std::ranges::find(context.ranks, rank, &RankPlace::rank);
    return host.empty() && place != context.ranks.end() ? place->host : host;
  };
  return {.exit_code = exit_code,
          .failure_text = context.secrets.mask(failure_text(failure, output, host_of))};
}

JobStatus status_of(const std::exception& error, const EndContext& context) {
  const bool users_own = dynamic_cast<const smp::ConfigError*>(&error) != nullptr ||
                         dynamic_cast<const smp::UserCodeError*>(&error) != nullptr;
  std::string text = users_own ? error.what() : fmt::format("Framework Error: \n{}", error.what());
  const std::string full_disks = free_space_text(free_space(context.folders), kFullBelow);
  if (!full_disks.empty()) text += fmt::format("\nDisk full: {}", full_disks);
  return {.exit_code = 1, .failure_text = context.secrets.mask(std::move(text))};
}

void remove_old_markers(const opt_ml::Layout& layout) {
  for (const std::filesystem::path& marker : {layout.success_marker(), layout.failure_marker()}) {
    std::error_code error;
    if (std::filesystem::remove(marker, error)) {
      SMP_LOG(info, "Removed {}, which an earlier run left", marker.string());
    } else if (error) {
      SMP_LOG(warning, "{} is an earlier run's and cannot be removed: {}", marker.string(),
              error.message());
    }
  }
}

int publish(const opt_ml::Layout& layout, const JobStatus& status) {
  try {
    // A job that ended before its folders were made has a report all the same.
    std::error_code ignored;
    if (std::filesystem::is_directory(layout.base(), ignored)) opt_ml::create_job_folders(layout);
    if (status.exit_code == 0) {
      if (std::filesystem::exists(layout.failure_marker(), ignored)) {
        SMP_LOG(warning, "The script wrote {} and ended well: its exit code decides",
                layout.failure_marker().string());
      }
      opt_ml::write_success(layout);
      SMP_LOG(info, "Reporting training SUCCESS");
      return 0;
    }
    SMP_LOG(error, "Reporting training FAILURE");
    // The log has the output already; the rest is in the file.
    SMP_LOG(error, "{}", status.failure_text.substr(0, status.failure_text.find("\n\n")));
    if (!opt_ml::write_failure(layout, status.failure_text)) {
      SMP_LOG(info, "{} was there before and is kept", layout.failure_marker().string());
    }
    SMP_LOG(error, "Encountered exit_code {}", status.exit_code);
    return status.exit_code;
  } catch (const smp::Error& error) {
    SMP_LOG(error, "{}", error.what());
    return status.exit_code == 0 ? 1 : status.exit_code;
  }
}

void log_as_the_launcher(int level) {
  smp::log::configure("sagemaker-training-toolkit", static_cast<smp::log::Level>(level));
}

Secrets keep_secrets(const opt_ml::Layout& layout, const smp::Variables& environment) {
  opt_ml::Hyperparameters parameters;
  try {
    parameters = opt_ml::read_hyperparameters(layout, opt_ml::read_data_channels(layout));
  } catch (const smp::Error&) {
    // Whoever needs them says what is wrong with them.
  }
  const Secrets secrets(environment, parameters);
  smp::log::mask_messages([secrets](std::string text) { return secrets.mask(std::move(text)); });
  return secrets;
}

int print_error(const std::exception& error) {
  SMP_LOG(error, "{}", error.what());
  return 1;
}

std::optional<long> oom_kills(const std::filesystem::path& proc,
                              const std::filesystem::path& cgroups) {
  // Lines are ID:CONTROLLERS:PATH; v2 has the one line "0::PATH". Inside a container the path is
  // often that of the machine, so the root of what is mounted is tried as well.
  std::ifstream membership(proc / "self" / "cgroup");
  std::string line;
  while (std::getline(membership, line)) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    const std::string relative = path.starts_with('/') ? path.substr(1) : path;
    if (controllers.empty()) {
      if (const auto value = counter(cgroups / relative / "memory.events")) return value;
      if (const auto value = counter(cgroups / "memory.events")) return value;
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      if (const auto value = counter(cgroups / "memory" / relative / "memory.oom_control")) {
        return value;
      }
      if (const auto value = counter(cgroups / "memory" / "memory.oom_control")) return value;
    }
  }
  return std::nullopt;
}

std::vector<FreeSpace> free_space(std::span<const std::filesystem::path> folders) {
  std::vector<FreeSpace> result;
  std::vector<dev_t> seen;
  for (const std::filesystem::path& folder : folders) {
    std::error_code failed;
    const auto space = std::filesystem::space(folder, failed);
    struct stat info {};
    if (failed || stat(folder.c_str(), &info) != 0) continue;
    if (std::ranges::find(seen, info.st_dev) != seen.end()) continue;
    seen.push_back(info.st_dev);
    result.push_back({.folder = folder, .bytes = space.available});
  }
  return result;
}

std::string free_space_text(std::span<const FreeSpace> spaces, std::uintmax_t limit) {
  std::string text;
  for (const FreeSpace& space : spaces) {
    if (space.bytes >= limit) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", space.folder.string(),
                        size_text(space.bytes));
  }
  return text;
}

}  // namespace entrypoint
