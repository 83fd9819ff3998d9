// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/ssh/job_status.h"

#include <algorithm>

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "entrypoint/ssh/ssh_client.h"
#include "entrypoint/ssh/sshd.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/file.h"
#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

constexpr std::size_t kLongestStatus = 24 * 1024;  // [bytes]
constexpr std::chrono::seconds kOneTry{8};
constexpr std::chrono::milliseconds kPause{250};

}  // namespace

std::filesystem::path shared_status_path(std::string_view master, std::string_view cluster_job) {
  return fmt::format("/tmp/done.{}{}{}", master, cluster_job.empty() ? "" : ".", cluster_job);
}

std::string job_status_text(const JobStatus& status) {
  std::string text = fmt::format("{}\n{}", status.exit_code, status.failure_text);
  if (text.size() > kLongestStatus) text.resize(kLongestStatus);
  return text;
}

JobStatus parse_job_status(std::string_view text) {
  JobStatus status;
  const std::string_view first = text.substr(0, text.find('\n'));
  if (first.empty()) return status;  // a reference launcher's
  const auto exit_code = smp::parse_number<int>(first);
  if (!exit_code) {
    return {.exit_code = 1,
            .failure_text = fmt::format("the master's status file holds no exit code: \"{}\"",
                                        first.substr(0, 100))};
  }
  status.exit_code = *exit_code;
  if (first.size() < text.size()) status.failure_text = text.substr(first.size() + 1);
  return status;
}

std::optional<JobStatus> read_job_status(const std::filesystem::path& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return std::nullopt;
  // A second name may be another user's, for an old file of ours.
  const bool is_ours = S_ISREG(info.st_mode) && info.st_uid == geteuid() && info.st_nlink == 1;
  if (!is_ours) return std::nullopt;
  return parse_job_status(smp::read_text(path));
}

std::string take_status_command(std::string_view master, std::string_view cluster_job) {
  // Names hold no blank or quote. Without -T a folder that somebody made there would take the file.
  return fmt::format(
      R"(done=${{{0}:+${0}/{1}}}; done=${{done:-{2}}}; draft=$(mktemp "$done.XXXXXXXX") && )"
      R"({{ cat > "$draft" && mv -fT "$draft" "$done" || {{ rm -f "$draft"; false; }}; }})",
      kFolderVariable, kStatusFile, shared_status_path(master, cluster_job).string());
}

void deliver_job_status(const StatusDelivery& delivery, const std::string& host,
                        const JobStatus& status, Deadline deadline) {
  const std::string command = take_status_command(delivery.master, delivery.cluster_job);
  while (true) {
    const std::chrono::milliseconds left(poll_timeout(deadline));
    const Completed done =
        run_on_host(delivery.ssh_config, host, command, delivery.environment,
                    std::min<std::chrono::milliseconds>(kOneTry, left), job_status_text(status));
    if (done.status.ok()) return;
    if (Clock::now() + kPause >= deadline) {
      throw smp::HostError("{} did not take the job's status: {}", host,
                           done.timed_out ? "no answer" : done.output);
    }
    poll(nullptr, 0, static_cast<int>(kPause.count()));
  }
}

}  // namespace entrypoint
