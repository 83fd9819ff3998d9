// SPDX-License-Identifier: Apache-2.0
// The services of AWS that a job uses: whole objects from and to S3, and CodeArtifact as pip's
// index.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "entrypoint/config/aws_location.h"
#include "entrypoint/config/aws_profile.h"
#include "entrypoint/fetch/aws_credentials.h"
#include "entrypoint/fetch/http_client.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/variables.h"

namespace entrypoint::fetch {

/// AWS_REGION, SAGEMAKER_REGION, then `job_region` (the job's hyperparameter), AWS_DEFAULT_REGION,
/// the profile's, us-east-1.
std::string choose_region(const smp::Variables& environment, std::string_view job_region,
                          const ProfileSettings& profile);

/// Domain of a region's services: amazonaws.com, amazonaws.com.cn, …
std::string_view domain_of(std::string_view region);

struct S3Endpoint {
  std::string region;
  std::string override_url;  ///< S3_ENDPOINT_URL, AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL; or empty
};

S3Endpoint choose_s3_endpoint(const smp::Variables& environment, std::string region);

/// URL of an object. Path style where the endpoint is overridden (emulators know no host per
/// bucket) and for buckets with a dot (no certificate matches); else the bucket is part of the
/// host.
std::string object_url(const S3Endpoint& endpoint, const S3Location& object);

/// Percent-encoding as AWS signs it: all but letters, digits, -._~ and, in a path, the slash.
std::string encode_path(std::string_view path);

/// The same for a part of a query, where the slash is encoded, too.
std::string encode_query(std::string_view text);

struct S3Options {
  /// Larger files are uploaded in parts of at least this size, of which S3 takes 10,000. [bytes]
  std::int64_t part_bytes = std::int64_t{256} * 1024 * 1024;
  /// For the advice in errors: what is downloaded are archives.
  bool fetches_archives = true;
};

/// There is no object of this name.
class NoSuchObject : public smp::ConfigError {
  using ConfigError::ConfigError;
};

/// Each call blocks until it is done: no request begins after the policy's `give_up_after`. Errors
/// name bucket, key and HTTP status: ConfigError where the job's settings or rights are wrong
/// (status 4xx), HostError where S3 or the network failed to the last attempt.
class S3Client {
 public:
  /// References must outlive it.
  S3Client(S3Endpoint endpoint, CredentialChain& credentials, HttpClient& client,
           const RetryPolicy& policy, S3Options options = {})
      : endpoint_(std::move(endpoint)),
        credentials_(credentials),
        client_(client),
        policy_(policy),
        options_(options) {}

  /// Writes the object to `file`, over what is there. Throws NoSuchObject, and ConfigError for one
  /// of more than `most_bytes`, too, of which a part is there then.
  void download(const S3Location& object, const std::filesystem::path& file,
                std::int64_t most_bytes = std::numeric_limits<std::int64_t>::max());

  /// The object is there whole, or what was there before is.
  void upload(const std::filesystem::path& file, const S3Location& object);

  /// Keys that begin with that of `prefix`, in order.
  std::vector<std::string> list(const S3Location& prefix);

  /// Removes an object, if there is one.
  void remove(const S3Location& object);

 private:
  /// `query` is encoded, its parameters sorted by name; empty for none.
  HttpResponse exchange(const S3Location& object, HttpRequest request, const std::string& what,
                        const std::string& query = "");
  void upload_parts(const std::filesystem::path& file, std::int64_t size, const S3Location& object,
                    const std::string& what);
  std::string upload_part(const std::filesystem::path& file, std::int64_t offset,
                          std::int64_t bytes, const S3Location& object, const std::string& what,
                          const std::string& query);

  S3Endpoint endpoint_;
  CredentialChain& credentials_;
  HttpClient& client_;
  const RetryPolicy& policy_;
  S3Options options_;
};

/// The text between <name> and </name>, or empty: S3's answers need no more. Pure.
std::string xml_text(std::string_view xml, std::string_view name);

/// The repository's index with a fresh authorization token in it: a secret, for PIP_INDEX_URL and
/// nothing else. `endpoint` replaces https://codeartifact.<region>.<domain> unless it is empty
/// (AWS_ENDPOINT_URL_CODEARTIFACT, AWS_ENDPOINT_URL). Errors name repository, domain and HTTP
/// status, never the token.
std::string package_index_url(const PackageRepository& repository, const std::string& endpoint,
                              CredentialChain& credentials, HttpClient& client,
                              const RetryPolicy& policy);

/// https://HOST/pypi/REPOSITORY/ with the token as password and `simple/` at its end. Throws
/// HostError for another shape. Pure.
std::string index_with_token(const std::string& repository_endpoint, const std::string& token);

}  // namespace entrypoint::fetch
