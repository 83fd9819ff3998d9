// SPDX-License-Identifier: Apache-2.0
// The file by which a worker learns how the job ended, written by the master over ssh: `done` in
// the worker's launch folder. It starts with the exit code, and the failure text follows. Where the
// other side is a reference launcher, which has no such folder, it is /tmp/done.<master>; that
// launcher's own is empty and means success.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "entrypoint/process/process_runner.h"

namespace entrypoint {

struct JobStatus {
  int exit_code = 0;
  std::string failure_text;  ///< what the master put into its failure file; empty on success

  bool operator==(const JobStatus&) const = default;
};

/// Of the file in the launch folder.
inline constexpr const char* kStatusFile = "done";

/// The file for reference launchers. `cluster_job` is JobSettings': two jobs on one host have files
/// of their own.
std::filesystem::path shared_status_path(std::string_view master, std::string_view cluster_job);

/// Pure; the text is cut so that it fits a pipe.
std::string job_status_text(const JobStatus& status);
JobStatus parse_job_status(std::string_view text);

/// None while there is no file. One that another user put there, a link included, does not count.
std::optional<JobStatus> read_job_status(const std::filesystem::path& path);

/// Pure: what the shell of a host does with a status on its stdin. The file is written under a name
/// that nobody knows before, then renamed: a reader sees all of it or nothing.
std::string take_status_command(std::string_view master, std::string_view cluster_job);

struct StatusDelivery {
  std::filesystem::path ssh_config;
  std::string master;
  std::string cluster_job;
  std::vector<std::string> environment;
};

/// Writes the file on `host`, trying until the deadline. Throws HostError. Blocks.
void deliver_job_status(const StatusDelivery& delivery, const std::string& host,
                        const JobStatus& status, Deadline deadline);

}  // namespace entrypoint
