// SPDX-License-Identifier: Apache-2.0
// The destination of files of output/intermediate while the job runs.
#pragma once

#include <optional>
#include <string>

#include "entrypoint/config/job_config.h"
#include "entrypoint/config/s3_location.h"

namespace entrypoint {

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
