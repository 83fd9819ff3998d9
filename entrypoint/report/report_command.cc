// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/report/report_command.h"

#include <system_error>

#include <fmt/format.h>

#include "entrypoint/report/report_json.h"
#include "entrypoint/report/report_page.h"
#include "smp_runtime/core/file.h"

namespace entrypoint::report {

namespace fs = std::filesystem;

std::string write_report(const ReportRequest& request) {
  JobRecord job = read_job_record(request.folders, request.since);
  job.end = request.end;
  const JobNumbers numbers = numbers_of(job);
  const std::vector<Finding> findings = judge(job, numbers);
  std::error_code failed;  // writing says the same
  fs::create_directories(request.page.parent_path(), failed);
  smp::replace_text(request.page, report_page(report_json(job, numbers, findings)));
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
