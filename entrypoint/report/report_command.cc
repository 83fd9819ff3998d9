// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/report/report_command.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include <fmt/format.h>

#include "entrypoint/report/report_json.h"
#include "entrypoint/report/report_page.h"
#include "smp_runtime/core/error.h"

namespace entrypoint::report {
namespace {

namespace fs = std::filesystem;

void write_whole(const fs::path& file, const std::string& text) {
  std::error_code failed;
  if (file.has_parent_path()) fs::create_directories(file.parent_path(), failed);
  const fs::path draft = file.string() + ".part";
  std::ofstream stream(draft, std::ios::binary | std::ios::trunc);
  stream << text;
  stream.close();
  const int error = errno;
  if (stream) fs::rename(draft, file, failed);
  if (stream && !failed) return;
  std::error_code gone;
  fs::remove(draft, gone);
  throw smp::ConfigError("the report cannot be written to {}: {}", file.string(),
                         failed ? failed.message() : std::strerror(error));
}

}  // namespace

std::string write_report(const ReportRequest& request) {
  JobRecord job = read_job_record(request.folders, request.since);
  job.end = request.end;
  const JobNumbers numbers = numbers_of(job);
  const std::vector<Finding> findings = judge(job, numbers);
  write_whole(request.page, report_page(report_json(job, numbers, findings)));
  if (numbers.steps == 0) return "";
  const Finding& first = findings.front();
  return first.advice.empty() ? first.text : fmt::format("{} {}", first.text, first.advice);
}

fs::path find_records(const fs::path& folder) {
  for (const char* below : {"output/data/records", "data/records", "records"}) {
    if (fs::is_directory(folder / below)) return folder / below;
  }
  return folder;
}

}  // namespace entrypoint::report
