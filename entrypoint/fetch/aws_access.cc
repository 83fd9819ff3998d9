// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/fetch/aws_access.h"

#include <string>
#include <utility>

namespace entrypoint::fetch {
namespace {

std::string ca_bundle(const smp::Variables& environment) {
  for (const char* variable : {"AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"}) {
    if (std::string file = smp::value_or(environment, variable); !file.empty()) return file;
  }
  return {};
}

}  // namespace

AwsAccess::AwsAccess(smp::Variables variables, std::string_view job_region, S3Options options,
                     RetryPolicy retries)
    : environment(std::move(variables)),
      profile(read_profile(environment)),
      policy(std::move(retries)),
      client(make_curl_client(ca_bundle(environment))),
      credentials(environment, profile, *client, policy),
      s3(choose_s3_endpoint(environment, choose_region(environment, job_region, profile)),
         credentials, *client, policy, options) {}

}  // namespace entrypoint::fetch
