// SPDX-License-Identifier: Apache-2.0
// Records of the other hosts of a job, for the report that one of them writes. Each host keeps its
// records where its own tree is; a link in its folder of the job leads there.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "entrypoint/plan/program_environment.h"

namespace entrypoint {

/// The folder in which this host's ranks and its launcher record; empty where the job has no
/// report.
std::filesystem::path records_folder(const ProgramEnvironment& environment);

/// Lets the master find `records`, those of this host, below the job's `folder`.
void offer_records(const std::filesystem::path& folder, const std::filesystem::path& records);

struct RecordsRequest {
  std::filesystem::path ssh_config;
  std::filesystem::path into;
  std::vector<std::string> environment;
};

/// Copies the records of `host`, which must have passed check_host_name(). Blocks for at most
/// `limit`; throws HostError where they do not come.
void fetch_records(const RecordsRequest& request, const std::string& host,
                   std::chrono::milliseconds limit);

}  // namespace entrypoint
