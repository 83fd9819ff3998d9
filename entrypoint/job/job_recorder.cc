// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/job/job_recorder.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include <fmt/ranges.h>
#include <unistd.h>

#include "entrypoint/job/failure/cause.h"
#include "entrypoint/report/job_record.h"
#include "entrypoint/report/report_page.h"
#include "entrypoint/ssh/host_records.h"
#include "smp_runtime/core/log.h"

namespace entrypoint {
namespace {

// Files on other hosts are written by other clocks.
constexpr std::chrono::seconds kClockMargin{10};

bool holds_bytes(const std::filesystem::path& folder) {
  std::error_code unreadable;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, unreadable)) {
    std::error_code gone;
    if (entry.is_regular_file(gone) && entry.file_size(gone) > 0 && !gone) return true;
  }
  return static_cast<bool>(unreadable);
}

std::string new_files(const std::filesystem::path& folder, std::filesystem::file_time_type since) {
  constexpr std::size_t kNamed = 3;
  std::vector<std::string> names;
  std::error_code unreadable;
  for (const auto& entry : std::filesystem::directory_iterator(folder, unreadable)) {
    std::error_code gone;
    const bool is_new = entry.is_regular_file(gone) && entry.last_write_time(gone) >= since;
    if (is_new && !gone && names.size() < kNamed) names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  return names.empty() ? std::string()
                       : fmt::format("; new in {}: {}", folder.string(), fmt::join(names, ", "));
}

}  // namespace

JobRecorder::JobRecorder(const JobConfig& job, const JobOutline& outline, OutputRecord& output,
                         Supervisor& processes, const Secrets& secrets)
    : job_(job),
      output_(output),
      processes_(processes),
      secrets_(secrets),
      began_(std::filesystem::file_time_type::clock::now()),
      folder_(records_folder(outline.environment)) {
  if (!job.options.report) return;
  report::HostRecord host{.name = job.current_host(),
                          .instance_type = job.files.resources.current_instance_type,
                          .processors = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN))};
  sampler_ = processes.start(
      HelperProcess{.name = "sample host", .work = [folder = folder_, host = std::move(host)] {
                      report::sample_host_for_ever(folder, host);
                      return std::string();
                    }});
  steps_.emplace(folder_, job.current_host());
  output.watch([this](int rank, std::string_view line) { steps_->add(rank, line); });
}

void JobRecorder::stop() {
  if (sampler_) processes_.send(*sampler_, SIGKILL);
}

void JobRecorder::write_report(const JobStatus& status) {
  if (steps_) steps_->flush();
  report::JobEnd end{.exit_code = status.exit_code, .failure = status.failure_text};
  if (end.exit_code != 0) {
    const auto& lines = output_.lines(StreamKind::kErr);
    end.last_lines.assign(lines.begin(), lines.end());
  }
  report::ReportRequest request{
      .folders = {folder_},
      .page = job_.layout.output_data() / "report.html",
      .since = began_ - kClockMargin,
      .end = std::move(end),
      .mask = [this](std::string text) { return secrets_.mask(std::move(text)); }};
  if (const std::string metrics = smp::value_or(job_.environment, "SMP_METRICS");
      std::filesystem::is_regular_file(metrics)) {
    request.folders.emplace_back(metrics);
  }
  const auto suggestion = job_.layout.input_config() / report::kSuggestionFile;
  if (std::filesystem::is_regular_file(suggestion)) request.folders.push_back(suggestion);
  try {
    const std::string verdict = report::write_report(request);
    if (status.exit_code == 0 && !verdict.empty()) SMP_LOG(info, "{}", verdict);
    SMP_LOG(info, "The report of the job: {}", request.page.string());
  } catch (const std::exception& error) {
    SMP_LOG(warning, "There is no report of the job: {}", error.what());
  }
}

void warn_of_hidden_error(const std::string& script, const OutputRecord& output) {
  const auto error = hidden_error(output, script);
  if (!error) return;
  SMP_LOG(warning,
          "the script ended with 0, and its output has an uncaught error: {}; in shell scripts use "
          "set -eo pipefail",
          *error);
}

void warn_of_empty_model(const JobConfig& job, std::filesystem::file_time_type began) {
  if (!job.is_master() || holds_bytes(job.layout.model())) return;
  SMP_LOG(warning, "The script wrote nothing into SM_MODEL_DIR ({}): the job's model is empty{}",
          job.layout.model().string(), new_files(job.layout.code(), began));
}

}  // namespace entrypoint
