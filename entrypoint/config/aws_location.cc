// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/config/aws_location.h"

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

std::string S3Location::text() const { return "s3://" + bucket + "/" + key; }

std::optional<S3Location> parse_s3_location(std::string_view url) {
  if (url_scheme(url) != "s3") return std::nullopt;
  url.remove_prefix(std::string_view("s3://").size());
  const std::size_t slash = std::min(url.find('/'), url.size());
  S3Location location{.bucket = std::string(url.substr(0, slash))};
  const bool is_name =
      !location.bucket.empty() && std::ranges::all_of(location.bucket, [](unsigned char c) {
        return std::isalnum(c) || c == '.' || c == '-' || c == '_';
      });
  if (!is_name) return std::nullopt;
  const std::size_t key = url.find_first_not_of('/', slash);
  if (key != std::string_view::npos) location.key = url.substr(key);
  return location;
}

std::string url_scheme(std::string_view text) {
  const std::size_t mark = text.find("://");
  if (mark == std::string_view::npos) return {};
  std::string scheme(text.substr(0, mark));
  for (char& c : scheme) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '+') return {};
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return scheme;
}

std::optional<std::string> path_of_file_url(std::string_view text) {
  if (url_scheme(text) != "file") return std::nullopt;
  text.remove_prefix(std::string_view("file://").size());
  constexpr std::string_view kHost = "localhost/";
  if (text.starts_with(kHost)) text.remove_prefix(kHost.size() - 1);
  return std::string(text);
}

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
