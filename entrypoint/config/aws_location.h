// SPDX-License-Identifier: Apache-2.0
// Places at AWS that a job names: an object or a prefix of S3, and the CodeArtifact repository that
// pip is to install from.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace entrypoint {

struct S3Location {
  std::string bucket;
  std::string key;  ///< not encoded, without leading slashes; may be empty

  /// s3://bucket/key
  [[nodiscard]] std::string text() const;
  bool operator==(const S3Location&) const = default;
};

/// Nothing for another scheme or for a bucket's name that is empty or holds what no host name may.
std::optional<S3Location> parse_s3_location(std::string_view url);

/// The scheme of `scheme://…`, in lower case; empty for a path.
std::string url_scheme(std::string_view text);

/// The path that `file://…` names, a host "localhost" dropped; nothing for anything else.
std::optional<std::string> path_of_file_url(std::string_view text);

/// arn:<partition>:codeartifact:<region>:<owner>:repository/<domain>/<name>
struct PackageRepository {
  std::string partition;
  std::string region;
  std::string owner;  ///< account that owns the domain
  std::string domain;
  std::string name;

  bool operator==(const PackageRepository&) const = default;
};

/// Throws ConfigError that names CA_REPOSITORY_ARN, what it holds and what it should look like.
PackageRepository parse_package_repository(std::string_view arn);

}  // namespace entrypoint
