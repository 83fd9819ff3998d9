// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/output_target.h"

#include "opt_ml_layout/python_text.h"
#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

void append_part(std::string& key, std::string_view part) {
  while (part.ends_with('/')) part.remove_suffix(1);
  if (part.empty()) return;
  if (!key.empty()) key += '/';
  key += part;
}

}  // namespace

std::optional<OutputTarget> choose_output_target(const JobConfig& job) {
  const opt_ml::Value* value = job.hyperparameters.reserved.find("sagemaker_s3_output");
  if (value == nullptr) return std::nullopt;
  OutputTarget target{.location = opt_ml::environment_text(*value)};
  if (target.location.empty() || job.intermediate_output_exists) return std::nullopt;
  if (path_of_file_url(target.location)) return target;
  const auto location = parse_s3_location(target.location);
  if (!location) {
    throw smp::ConfigError(
        "hyperparameter sagemaker_s3_output \"{}\": expecting 's3://BUCKET/PREFIX' or 'file://'",
        target.location);
  }
  S3Location prefix{.bucket = location->bucket};
  append_part(prefix.key, location->key);
  append_part(prefix.key, job.training_job_name.value_or(""));
  append_part(prefix.key, "output/intermediate");
  target.prefix = prefix;
  return target;
}

}  // namespace entrypoint
