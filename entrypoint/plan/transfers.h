// SPDX-License-Identifier: Apache-2.0
// Transfers of a job: the source of the user's code, and the destination of files of
// output/intermediate while the job runs. Decided here, carried out by fetch/.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "entrypoint/config/aws_location.h"
#include "entrypoint/config/job_config.h"

namespace entrypoint {

struct CodeSource {
  enum class Kind {
    kFolder,  ///< the code folder as it is: nothing is fetched
    kLocal,   ///< a folder, an archive or a single file of this host
    kS3,      ///< an archive on S3
  };
  Kind kind = Kind::kFolder;
  std::filesystem::path folder;  ///< where it goes, and its program runs
  std::string location;          ///< as the job names it, `file://` included
  std::filesystem::path path;    ///< kLocal
  S3Location object;             ///< kS3
  bool over_existing = false;    ///< the folder holds code that is to be replaced

  [[nodiscard]] bool is_fetched() const { return kind != Kind::kFolder; }
};

/// Pure. Code that is there stays unless SM_LAUNCH_CODE=replace. A path below /opt/ml means the
/// job's own tree, wherever that is. Throws ConfigError for a location that cannot be fetched,
/// when it would have to be.
CodeSource choose_code_source(const JobConfig& job);

/// The warning for code that is not fetched because other code is there, which then lacks the entry
/// point. Pure.
std::optional<std::string> skipped_fetch_warning(const JobConfig& job);

/// A line for the log where code is not fetched, or still has to be. Pure.
std::optional<std::string> fetch_note(const JobConfig& job);

struct OutputTarget {
  std::string location;              ///< sagemaker_s3_output as the job names it
  std::optional<S3Location> prefix;  ///< key of the folder itself, no slash at its end; none: the
                                     ///< folder is mounted, nothing is uploaded

  bool operator==(const OutputTarget&) const = default;
};

/// Nothing when the job does not ask for it, or when output/intermediate is there already: then the
/// platform takes care of it. Throws ConfigError for schemes other than s3 and file. Pure.
std::optional<OutputTarget> choose_output_target(const JobConfig& job);

}  // namespace entrypoint
