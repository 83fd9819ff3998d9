// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/config/package_repository.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

std::vector<std::string> split(std::string_view text, char mark, std::size_t most) {
  std::vector<std::string> parts;
  while (parts.size() + 1 < most && text.find(mark) != std::string_view::npos) {
    parts.emplace_back(text.substr(0, text.find(mark)));
    text.remove_prefix(text.find(mark) + 1);
  }
  parts.emplace_back(text);
  return parts;
}

// They become parts of a host name and of a query, and need no encoding there.
bool is_plain(const std::string& text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == '.';
  });
}

}  // namespace

PackageRepository parse_package_repository(std::string_view arn) {
  const std::vector<std::string> parts = split(arn, ':', 6);
  const std::vector<std::string> resource = split(parts.back(), '/', 3);
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
