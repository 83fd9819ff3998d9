// SPDX-License-Identifier: Apache-2.0
// Records of all ranks and hosts of a job, from the files of one or several folders. Load of a host
// is read from /proc into a file beside the ranks' records, so that there is something to see of
// scripts that do not use smp, too.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "entrypoint/report/rank_record.h"
#include "entrypoint/report/suggested_step.h"
#include "entrypoint/report/told_steps.h"

namespace entrypoint::report {

/// The job's end as `train` saw it; only in the report that `train` writes itself.
struct JobEnd {
  int exit_code = 0;
  std::string failure;                  ///< the text of the failure file; empty: it succeeded
  std::vector<std::string> last_lines;  ///< of its output, where it failed
};

/// A reading of a host, as train takes it.
struct HostSample {
  double time = 0;                ///< [s] since 1970
  double cpu = 0;                 ///< share of all processors, 0 to 1
  std::int64_t memory = 0;        ///< [bytes] in use
  std::int64_t memory_total = 0;  ///< [bytes]
  std::int64_t received = 0;      ///< [bytes] by the network so far
  std::int64_t sent = 0;
};

struct HostRecord {
  std::string name;
  std::string instance_type;  ///< empty: not told
  int processors = 0;         ///< 0: not told
  std::vector<HostSample> samples;
};

struct JobRecord {
  std::vector<RankRecord> ranks;  ///< in their order
  std::vector<HostRecord> hosts;
  std::optional<ToldSteps> told;  ///< where no rank recorded a step
  std::optional<JobEnd> end;
  std::optional<SuggestedStep> suggested;
  std::vector<std::string> problems;  ///< what is missing or cannot be read, as sentences

  [[nodiscard]] const RankRecord* rank(int number) const;
};

/// From folders of records, and among them files in the format of SMP_METRICS and one that is named
/// suggestion.json. Files that were last written before `since` are an earlier job's and left out.
/// Files of several jobs: the newest counts, the others are a problem. Throws ConfigError where
/// there is no record at all.
JobRecord read_job_record(
    std::span<const std::filesystem::path> places,
    std::filesystem::file_time_type since = std::filesystem::file_time_type::min());

/// Processor time of the host since its start, in the kernel's ticks.
struct ProcessorTime {
  std::int64_t busy = 0;
  std::int64_t all = 0;
};

/// Now; what the system does not say is 0. `cpu` is the share since `before`, which becomes now.
HostSample sample_host(ProcessorTime& before);

/// Takes a sample of `host`, of which all but the samples is known, each second, in a long job
/// fewer, until the process is killed: a helper process of the launcher does nothing else. A file
/// that cannot be written ends it with a warning.
void sample_host_for_ever(const std::filesystem::path& folder, const HostRecord& host);

}  // namespace entrypoint::report
