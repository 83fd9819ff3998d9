// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/transfers.h"

#include <fmt/format.h>

#include "opt_ml_layout/python_text.h"
#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

namespace fs = std::filesystem;

/// The SDK names /opt/ml/input/data/code/sourcedir.tar.gz for isolated jobs, and mock trees lie
/// elsewhere.
fs::path in_the_tree(const std::string& path, const opt_ml::Layout& layout) {
  const std::string standard = std::string(opt_ml::Layout::kDefaultBase) + "/";
  if (path.starts_with(standard)) return layout.base() / path.substr(standard.size());
  return path;
}

[[noreturn]] void refuse(const JobConfig& job, std::string_view what) {
  throw smp::ConfigError(
      "sagemaker_submit_directory \"{}\": {}; expected s3://BUCKET/KEY of a tar.gz archive, or the "
      "path of a folder, an archive or a file",
      job.program.module_dir, what);
}

bool holds(const fs::path& folder, const fs::path& path) {
  const fs::path relative = path.lexically_normal().lexically_relative(folder.lexically_normal());
  return !relative.empty() && *relative.begin() != "..";
}

CodeSource local_source(const JobConfig& job, const std::string& path, CodeSource source) {
  source.kind = CodeSource::Kind::kLocal;
  source.path = in_the_tree(path, job.layout).lexically_normal();
  if (!source.path.is_absolute()) refuse(job, "is a relative path");
  const fs::path code = job.layout.code();
  if (holds(code, source.path)) refuse(job, "lies inside the code folder that it would replace");
  if (holds(source.path, code)) refuse(job, "holds the code folder that it would be copied to");
  return source;
}

/// Names code elsewhere, and has other code in its folder.
bool skips_fetch(const JobConfig& job) {
  return !choose_code_source(job).is_fetched() && !job.names_code_folder() &&
         !job.program.code.fetched;
}

void append_part(std::string& key, std::string_view part) {
  while (part.ends_with('/')) part.remove_suffix(1);
  if (part.empty()) return;
  if (!key.empty()) key += '/';
  key += part;
}

}  // namespace

CodeSource choose_code_source(const JobConfig& job) {
  CodeSource source{.folder = job.layout.code(), .location = job.program.module_dir};
  const bool has_code = !job.program.code.entries.empty();
  if (job.names_code_folder() || job.program.code.fetched) return source;
  if (has_code && job.options.code == CodePolicy::kKeep) return source;
  source.over_existing = has_code;

  const std::string scheme = url_scheme(job.program.module_dir);
  if (scheme == "s3") {
    const auto object = parse_s3_location(job.program.module_dir);
    if (!object) refuse(job, "names no bucket");
    if (object->key.empty() || object->key.ends_with('/'))
      refuse(job, "is a prefix, not an object");
    source.kind = CodeSource::Kind::kS3;
    source.object = *object;
    return source;
  }
  if (const auto path = path_of_file_url(job.program.module_dir))
    return local_source(job, *path, source);
  if (!scheme.empty()) refuse(job, fmt::format("expecting s3 scheme, found {}", scheme));
  return local_source(job, job.program.module_dir, source);
}

std::optional<std::string> skipped_fetch_warning(const JobConfig& job) {
  if (!skips_fetch(job) || job.program.entry_point.empty() || job.program.code.entry_point_exists) {
    return std::nullopt;
  }
  return fmt::format(
      "{} holds code, so {} is not fetched, and {} is not in that folder; set "
      "SM_LAUNCH_CODE=replace to fetch it, or empty the folder",
      job.layout.code().string(), job.program.module_dir, job.program.entry_point);
}

std::optional<std::string> fetch_note(const JobConfig& job) {
  if (choose_code_source(job).is_fetched()) {
    return "the code is not here yet: a setup.py or requirements.txt in it will change what is "
           "installed, a setup.py also how it is run";
  }
  if (!skips_fetch(job) || skipped_fetch_warning(job)) return std::nullopt;
  return fmt::format("{} holds code, so {} is not fetched", job.layout.code().string(),
                     job.program.module_dir);
}

std::optional<OutputTarget> choose_output_target(const JobConfig& job) {
  const opt_ml::Value* value = job.files.hyperparameters.reserved.find("sagemaker_s3_output");
  if (value == nullptr) return std::nullopt;
  OutputTarget target{.location = opt_ml::environment_text(*value)};
  if (target.location.empty() || job.files.intermediate_output_exists) return std::nullopt;
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
