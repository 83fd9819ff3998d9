// SPDX-License-Identifier: Apache-2.0
// The CodeArtifact repository that pip is to install from.
#pragma once

#include <string>
#include <string_view>

namespace entrypoint {

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
