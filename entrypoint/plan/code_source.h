// SPDX-License-Identifier: Apache-2.0
// The source of the user's code: decided here, fetched by fetch/code_fetch.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "entrypoint/config/job_config.h"
#include "entrypoint/config/s3_location.h"

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

}  // namespace entrypoint
