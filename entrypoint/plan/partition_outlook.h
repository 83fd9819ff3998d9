// SPDX-License-Identifier: Apache-2.0
// `train --plan`: the partition file that the job's settings name, and what it says of a step.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "entrypoint/plan/job_outline.h"

namespace entrypoint {

struct PartitionOutlook {
  std::filesystem::path file;
  bool is_loaded = false;  ///< the job takes its partition from it; else the first step writes it
  std::string summary;     ///< who decided, and what is expected; empty: the file does not say
  std::string warning;     ///< why the job will not be able to load it; empty: nothing is known
};

/// The file as it is now on the host of rank 0, which reads and writes it; relative names are the
/// script's. None on other hosts, without `partition_file`, and where a file is not there that a
/// step is to write or that comes with code which is not fetched yet.
std::optional<PartitionOutlook> look_at_partition_file(const JobOutline& outline);

}  // namespace entrypoint
