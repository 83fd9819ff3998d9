// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/report/report_page.h"

#include <string_view>
#include <system_error>
#include <utility>

#include "page_files.h"
#include <fmt/format.h>

#include "entrypoint/report/report_json.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/file.h"

namespace entrypoint::report {
namespace {

/// As in JSON, so that no text can end the element that it stands in.
std::string without_markup(std::string text) {
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  return safe;
}

template <typename Mask>
void mask_texts(nlohmann::json& value, const Mask& mask) {
  if (value.is_string()) value = mask(value.get<std::string>());
  if (!value.is_structured()) return;
  for (nlohmann::json& part : value) mask_texts(part, mask);
}

}  // namespace

std::string report_page(const nlohmann::json& report) {
  const std::string data = without_markup(
      report.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace));
  const std::pair<std::string_view, std::string_view> parts[] = {
      {"@STYLE@", files::page_css},
      {"@DATA@", data},
      {"@CHARTS@", files::charts_js},
      {"@SCRIPT@", files::page_js},
  };
  std::string_view left = files::page_html;
  std::string page;
  for (const auto& [mark, text] : parts) {
    const std::size_t at = left.find(mark);
    SMP_CHECK(at != std::string_view::npos, "the page has no {}", mark);
    page.append(left.substr(0, at)).append(text);
    left.remove_prefix(at + mark.size());
  }
  return page.append(left);
}

namespace fs = std::filesystem;

std::string write_report(const ReportRequest& request) {
  JobRecord job = read_job_record(request.folders, request.since);
  job.end = request.end;
  const JobNumbers numbers = numbers_of(job);
  const std::vector<Finding> findings = judge(job, numbers);
  std::error_code failed;  // writing says the same
  fs::create_directories(request.page.parent_path(), failed);
  nlohmann::json report = report_json(job, numbers, findings);
  if (request.mask) mask_texts(report, request.mask);
  smp::replace_text(request.page, report_page(report));
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
