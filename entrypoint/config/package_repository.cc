// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/config/package_repository.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

// They become parts of a host name and of a query, and need no encoding there.
bool is_plain(const std::string& text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == '.';
  });
}

}  // namespace

PackageRepository parse_package_repository(std::string_view arn) {
  const std::vector<std::string> parts = smp::split(arn, ':');
  const std::vector<std::string> resource = smp::split(parts.back(), '/');
  const bool shape = parts.size() == 6 && parts[0] == "arn" && parts[2] == "codeartifact" &&
                     resource.size() == 3 && resource[0] == "repository";
  if (shape) {
    PackageRepository result{.partition = parts[1],
                             .region = parts[3],
                             .owner = parts[4],
                             .domain = resource[1],
                             .name = resource[2]};
    const std::string* fields[] = {&result.partition, &result.region, &result.owner, &result.domain,
                                   &result.name};
    if (std::ranges::all_of(fields, [](const std::string* field) { return is_plain(*field); })) {
      return result;
    }
  }
  throw smp::ConfigError(
      "CA_REPOSITORY_ARN=\"{}\": expected "
      "arn:<partition>:codeartifact:<region>:<account>:repository/<domain>/<repository>; correct "
      "or unset it",
      arn);
}

}  // namespace entrypoint
