// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/partition_outlook.h"

#include <string_view>

#include <fmt/format.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/file.h"
#include "smp_runtime/partition/partition_file.h"

namespace entrypoint {
namespace {

/// Words of the log with which every summary begins.
constexpr std::string_view kChosen = "Partition chosen: ";

}  // namespace

std::optional<PartitionOutlook> look_at_partition_file(const JobOutline& outline) {
  const auto& settings = outline.parallel.v1;
  if (!settings || !settings->partition_file || outline.runner.role == Role::kWorker) return {};
  PartitionOutlook outlook{.file = outline.code.folder / *settings->partition_file,
                           .is_loaded = settings->load_partition};
  std::error_code none;
  if (!std::filesystem::exists(outlook.file, none)) {
    const bool may_come =
        outline.code.is_fetched() && std::filesystem::path(*settings->partition_file).is_relative();
    if (!outlook.is_loaded || may_come) return {};
    outlook.warning = fmt::format(
        "load_partition: partition_file {} is not there; give a file that a job with "
        "partition_file wrote, or set load_partition to false",
        outlook.file.string());
    return outlook;
  }
  try {
    outlook.summary = smp::partition::read_partition_summary(
        smp::read_text(outlook.file), fmt::format("partition_file {}", outlook.file.string()),
        static_cast<int>(settings->pipeline_parallel_degree));
    if (outlook.summary.starts_with(kChosen)) outlook.summary.erase(0, kChosen.size());
  } catch (const smp::ConfigError& error) {
    if (outlook.is_loaded) outlook.warning = error.what();
  }
  return outlook;
}

}  // namespace entrypoint
