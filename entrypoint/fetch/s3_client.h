// SPDX-License-Identifier: Apache-2.0
// Whole objects from and to S3.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "entrypoint/config/s3_location.h"
#include "entrypoint/fetch/aws_credentials.h"
#include "entrypoint/fetch/aws_endpoint.h"
#include "entrypoint/fetch/http_client.h"
#include "entrypoint/fetch/retries.h"

namespace entrypoint::fetch {

/// S3 takes no more in one request. [bytes]
inline constexpr std::uintmax_t kLargestUpload = std::uintmax_t{5} * 1024 * 1024 * 1024;

/// Each call blocks until it is done, for at most eight times the request's own limit. Errors name
/// bucket, key and HTTP status: ConfigError where the job's settings or rights are wrong (status
/// 4xx), HostError where S3 or the network failed to the last attempt.
class S3Client {
 public:
  /// References must outlive it.
  S3Client(S3Endpoint endpoint, CredentialChain& credentials, HttpClient& client,
           const RetryPolicy& policy)
      : endpoint_(std::move(endpoint)),
        credentials_(credentials),
        client_(client),
        policy_(policy) {}

  /// Writes the object to `file`, over what is there.
  void download(const S3Location& object, const std::filesystem::path& file);

  /// Throws ConfigError for files above kLargestUpload, too.
  void upload(const std::filesystem::path& file, const S3Location& object);

 private:
  HttpResponse exchange(const S3Location& object, HttpRequest request, const std::string& what);

  S3Endpoint endpoint_;
  CredentialChain& credentials_;
  HttpClient& client_;
  const RetryPolicy& policy_;
};

/// The text between <name> and </name>, or empty: S3's answers need no more. Pure.
std::string xml_text(std::string_view xml, std::string_view name);

}  // namespace entrypoint::fetch
