// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/fetch/aws_services.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include <fmt/format.h>

#include "opt_ml_layout/json_document.h"
#include "opt_ml_layout/value.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"

namespace entrypoint::fetch {
namespace {

// SHA-256 of nothing, which is the body of a GET.
constexpr const char* kEmptyBody =
    "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

constexpr int kForbidden = 403;
constexpr int kNotFound = 404;

/// 403 is also the answer to clocks and signatures that are wrong: the code tells which.
std::string_view advice_for(int status, std::string_view code, std::string_view key,
                            bool fetches_archives) {
  if (code == "AccessDenied") {
    return fetches_archives
               ? "; the job's role needs s3:GetObject or s3:PutObject there, and kms:Decrypt or "
                 "kms:GenerateDataKey for an encrypted bucket"
               : "; the job's role needs s3:GetObject, s3:PutObject, s3:DeleteObject, "
                 "s3:AbortMultipartUpload and s3:ListBucket there, and kms:Decrypt or "
                 "kms:GenerateDataKey for an encrypted bucket";
  }
  if (code == "RequestTimeTooSkewed") return "; set this machine's clock";
  if (status != kNotFound) return "";
  constexpr std::string_view kArchives[] = {".gz", ".tgz", ".tar", ".zip", ".bz2", ".xz", ".zst"};
  const bool is_archive = std::ranges::any_of(
      kArchives, [key](std::string_view ending) { return key.ends_with(ending); });
  return code != "NoSuchKey" || is_archive || !fetches_archives
             ? "; check bucket, key and region"
             : "; a prefix is no archive: name the object itself, such as PREFIX/sourcedir.tar.gz";
}

}  // namespace

std::string choose_region(const smp::Variables& environment, std::string_view job_region,
                          const ProfileSettings& profile) {
  for (const char* variable : {"AWS_REGION", "SAGEMAKER_REGION"}) {
    if (std::string region = smp::value_or(environment, variable); !region.empty()) return region;
  }
  if (!job_region.empty()) return std::string(job_region);
  return smp::value_or(environment, "AWS_DEFAULT_REGION",
                       smp::value_or(profile, "region", "us-east-1"));
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

S3Endpoint choose_s3_endpoint(const smp::Variables& environment, std::string region) {
  S3Endpoint endpoint{.region = std::move(region)};
  for (const char* variable : {"S3_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}) {
    endpoint.override_url = smp::value_or(environment, variable);
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

std::string encode_query(std::string_view text) {
  std::string result;
  for (const char c : encode_path(text)) result += c == '/' ? std::string("%2F") : std::string{c};
  return result;
}

std::string xml_text(std::string_view xml, std::string_view name) {
  const std::string open = fmt::format("<{}>", name);
  const std::size_t begin = xml.find(open);
  const std::size_t end = xml.find(fmt::format("</{}>", name));
  if (begin == std::string_view::npos || end == std::string_view::npos) return {};
  const std::size_t start = begin + open.size();
  return start <= end ? std::string(xml.substr(start, end - start)) : std::string{};
}

HttpResponse S3Client::exchange(const S3Location& object, HttpRequest request,
                                const std::string& what, const std::string& query) {
  const auto send = [&] {
    request.url = object_url(endpoint_, object) + (query.empty() ? "" : "?" + query);
    request.signature =
        Signature{.credentials = credentials_.get(), .region = endpoint_.region, .service = "s3"};
    return send_with_retries(client_, request, policy_, what);
  };
  HttpResponse response;
  try {
    response = send();
    // A bucket elsewhere: S3 says where, whatever it answers.
    const std::string region = response.header("x-amz-bucket-region");
    if (!response.ok() && endpoint_.override_url.empty() && !region.empty() &&
        region != endpoint_.region) {
      SMP_LOG(info, "bucket {} is in region {}, not {}", object.bucket, region, endpoint_.region);
      endpoint_.region = region;
      response = send();
    }
  } catch (const NoAnswer& error) {
    throw smp::HostError("{}: bucket {}, key {}: no answer {}", what, object.bucket, object.key,
                         error.what());
  } catch (const TooLarge& error) {
    throw smp::ConfigError(
        "{}: it has {}; make it smaller, give {} more space, or raise SM_LAUNCH_CODE_MAX_BYTES",
        what, error.what(), request.to_file.parent_path().string());
  }
  if (response.ok()) return response;

  const std::string code = xml_text(response.body, "Code");
  const std::string message = xml_text(response.body, "Message");
  const std::string text = fmt::format(
      "{}: bucket {}, key {}: HTTP status {}{}{}{}{}", what, object.bucket, object.key,
      response.status, code.empty() ? "" : " " + code, message.empty() ? "" : ": " + message,
      advice_for(response.status, code, object.key, options_.fetches_archives),
      response.status == kForbidden ? "; credentials came from " + credentials_.get().origin : "");
  constexpr int kServerErrors = 500;
  if (response.status == kNotFound && code == "NoSuchKey") throw NoSuchObject("{}", text);
  if (response.status < kServerErrors) throw smp::ConfigError("{}", text);
  throw smp::HostError("{}", text);
}

void S3Client::download(const S3Location& object, const std::filesystem::path& file,
                        std::int64_t most_bytes) {
  exchange(object, {.headers = {kEmptyBody}, .to_file = file, .most_bytes = most_bytes},
           "download of " + object.text());
}

std::string index_with_token(const std::string& repository_endpoint, const std::string& token) {
  const std::size_t scheme = repository_endpoint.find("://");
  if (scheme == std::string::npos || token.empty()) {
    throw smp::HostError("CodeArtifact named the repository endpoint \"{}\"{}", repository_endpoint,
                         token.empty() ? " and no token" : ", which is no URL");
  }
  std::string url = repository_endpoint;
  if (!url.ends_with('/')) url += '/';
  url.insert(scheme + 3, "aws:" + token + "@");
  return url + "simple/";
}

std::string package_index_url(const PackageRepository& repository, const std::string& endpoint,
                              CredentialChain& credentials, HttpClient& client,
                              const RetryPolicy& policy) {
  const std::string base = endpoint.empty()
                               ? fmt::format("https://codeartifact.{}.{}", repository.region,
                                             domain_of(repository.region))
                               : endpoint;
  const std::string what =
      fmt::format("CodeArtifact repository {} of domain {} ({}, {})", repository.name,
                  repository.domain, repository.owner, repository.region);
  const auto ask = [&](const std::string& method, const std::string& path, const std::string& query,
                       std::string_view key) {
    HttpRequest request{.method = method, .url = base + path + "?" + query};
    request.signature = Signature{
        .credentials = credentials.get(), .region = repository.region, .service = "codeartifact"};
    HttpResponse response;
    try {
      response = send_with_retries(client, request, policy, what);
    } catch (const NoAnswer& error) {
      throw smp::HostError("{}: no answer from {} {}", what, base, error.what());
    }
    const auto answer = opt_ml::try_parse_json(response.body);
    const std::string value = answer && response.ok() ? answer->text_of(key) : "";
    if (!value.empty()) return value;
    // Only a refusal's text is shown: what was granted holds the token.
    const std::string reason = answer && !response.ok() ? answer->text_of("message") : "";
    constexpr int kServerErrors = 500;
    if (response.status >= kServerErrors) {
      throw smp::HostError("{}: {} {} answered HTTP status {}", what, method, path,
                           response.status);
    }
    throw smp::ConfigError(
        "{}: {} {} answered HTTP status {}{}; check CA_REPOSITORY_ARN and the role's right to "
        "codeartifact:GetAuthorizationToken, GetRepositoryEndpoint and sts:GetServiceBearerToken",
        what, method, path, response.status, reason.empty() ? "" : ": " + reason);
  };
  const std::string domain =
      fmt::format("domain={}&domain-owner={}", repository.domain, repository.owner);
  const std::string token = ask("POST", "/v1/authorization-token", domain, "authorizationToken");
  const std::string index =
      ask("GET", "/v1/repository/endpoint", domain + "&format=pypi&repository=" + repository.name,
          "repositoryEndpoint");
  return index_with_token(index, token);
}

}  // namespace entrypoint::fetch
