// SPDX-License-Identifier: Apache-2.0
// Host and URL of a request to AWS. Pure.
#pragma once

#include <string>
#include <string_view>

#include "entrypoint/config/aws_profile.h"
#include "entrypoint/config/process_environment.h"
#include "entrypoint/config/s3_location.h"

namespace entrypoint::fetch {

/// AWS_REGION, SAGEMAKER_REGION, then `job_region` (the job's hyperparameter), AWS_DEFAULT_REGION,
/// the profile's, us-east-1.
std::string choose_region(const EnvironmentMap& environment, std::string_view job_region,
                          const ProfileSettings& profile);

/// Domain of a region's services: amazonaws.com, amazonaws.com.cn, …
std::string_view domain_of(std::string_view region);

struct S3Endpoint {
  std::string region;
  std::string override_url;  ///< S3_ENDPOINT_URL, AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL; or empty
};

S3Endpoint choose_s3_endpoint(const EnvironmentMap& environment, std::string region);

/// URL of an object. Path style where the endpoint is overridden (emulators know no host per
/// bucket) and for buckets with a dot (no certificate matches); else the bucket is part of the
/// host.
std::string object_url(const S3Endpoint& endpoint, const S3Location& object);

/// Percent-encoding as AWS signs it: all but letters, digits, -._~ and, in a path, the slash.
std::string encode_path(std::string_view path);

}  // namespace entrypoint::fetch
