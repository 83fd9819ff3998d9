// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/fetch/aws_endpoint.h"

#include <array>
#include <cctype>
#include <utility>

#include <fmt/format.h>

namespace entrypoint::fetch {

std::string choose_region(const EnvironmentMap& environment, std::string_view job_region,
                          const ProfileSettings& profile) {
  for (const char* variable : {"AWS_REGION", "SAGEMAKER_REGION"}) {
    if (std::string region = value_or(environment, variable); !region.empty()) return region;
  }
  if (!job_region.empty()) return std::string(job_region);
  return value_or(environment, "AWS_DEFAULT_REGION", value_or(profile, "region", "us-east-1"));
}

std::string_view domain_of(std::string_view region) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kPartitions = {
      {{"cn-", "amazonaws.com.cn"},
       {"us-iso-", "c2s.ic.gov"},
       {"us-isob-", "sc2s.sgov.gov"},
       {"us-isof-", "csp.hci.ic.gov"},
       {"eu-isoe-", "cloud.adc-e.uk"}}};
  for (const auto& [prefix, domain] : kPartitions) {
    if (region.starts_with(prefix)) return domain;
  }
  return "amazonaws.com";
}

S3Endpoint choose_s3_endpoint(const EnvironmentMap& environment, std::string region) {
  S3Endpoint endpoint{.region = std::move(region)};
  for (const char* variable : {"S3_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}) {
    endpoint.override_url = value_or(environment, variable);
    if (!endpoint.override_url.empty()) break;
  }
  while (endpoint.override_url.ends_with('/')) endpoint.override_url.pop_back();
  return endpoint;
}

std::string object_url(const S3Endpoint& endpoint, const S3Location& object) {
  const std::string key = encode_path(object.key);
  if (!endpoint.override_url.empty()) {
    return fmt::format("{}/{}/{}", endpoint.override_url, object.bucket, key);
  }
  const std::string host = fmt::format("s3.{}.{}", endpoint.region, domain_of(endpoint.region));
  if (object.bucket.find_first_of("._") != std::string::npos) {
    return fmt::format("https://{}/{}/{}", host, object.bucket, key);
  }
  return fmt::format("https://{}.{}/{}", object.bucket, host, key);
}

std::string encode_path(std::string_view path) {
  std::string result;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte < 0x80 && (std::isalnum(byte) || c == '-' || c == '.' || c == '_' ||
                                       c == '~' || c == '/');
    if (plain) {
      result += c;
    } else {
      result += fmt::format("%{:02X}", byte);
    }
  }
  return result;
}

}  // namespace entrypoint::fetch
