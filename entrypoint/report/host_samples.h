// SPDX-License-Identifier: Apache-2.0
// Load of a host while a job runs, read from /proc into a file beside the ranks' records. So there
// is something to see of scripts that do not use smp, too.
#pragma once

#include <filesystem>
#include <string>

#include "entrypoint/report/job_record.h"

namespace entrypoint::report {

/// Processor time of the host since its start, in the kernel's ticks.
struct ProcessorTime {
  std::int64_t busy = 0;
  std::int64_t all = 0;
};

/// Now; what the system does not say is 0. `cpu` is the share since `before`, which becomes now.
HostSample sample_host(ProcessorTime& before);

/// Takes a sample each second, in a long job fewer, until the process is killed: a helper process
/// of the launcher does nothing else. A file that cannot be written ends it with a warning.
void sample_host_for_ever(const std::filesystem::path& folder, const std::string& host);

}  // namespace entrypoint::report
