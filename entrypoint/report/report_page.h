// SPDX-License-Identifier: Apache-2.0
// `train --report`: from folders of records to the page, one HTML file that asks for nothing from
// anywhere.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "entrypoint/report/job_record.h"

namespace entrypoint::report {

struct ReportRequest {
  std::vector<std::filesystem::path> folders;  ///< of records; of several hosts, too
  std::filesystem::path page;                  ///< what is written
  /// When the job began: what was last written before is another one's.
  std::filesystem::file_time_type since = std::filesystem::file_time_type::min();
  std::optional<JobEnd> end;  ///< where the job's end is known
  /// What each text of the page goes through; empty: nothing.
  std::function<std::string(std::string)> mask;
};

/// Writes the page, in one step. The verdict as text: the first finding and its advice; empty where
/// no step was recorded. Throws ConfigError where there are no records, HostError where the page
/// cannot be written.
std::string write_report(const ReportRequest& request);

/// The folder of records for one that somebody names: the folder itself, or where a job keeps them
/// below it.
std::filesystem::path find_records(const std::filesystem::path& folder);

/// The page of a report_json(). Markup in the report's texts stays text.
std::string report_page(const nlohmann::json& report);

}  // namespace entrypoint::report
