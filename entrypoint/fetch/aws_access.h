// SPDX-License-Identifier: Apache-2.0
// What a program needs to use AWS, from its environment.
#pragma once

#include <memory>
#include <string_view>

#include "entrypoint/config/aws_profile.h"
#include "entrypoint/fetch/aws_credentials.h"
#include "entrypoint/fetch/aws_services.h"
#include "entrypoint/fetch/http_client.h"
#include "smp_runtime/core/variables.h"

namespace entrypoint::fetch {

/// For one thread at a time. Not movable: its parts refer to each other.
struct AwsAccess {
  /// Reads the profile's files; asks nobody yet. `job_region` as in choose_region().
  AwsAccess(smp::Variables variables, std::string_view job_region, S3Options options = {},
            RetryPolicy retries = patient());
  AwsAccess(const AwsAccess&) = delete;
  AwsAccess& operator=(const AwsAccess&) = delete;

  smp::Variables environment;
  ProfileSettings profile;
  RetryPolicy policy;
  std::unique_ptr<HttpClient> client;
  CredentialChain credentials;
  S3Client s3;
};

}  // namespace entrypoint::fetch
