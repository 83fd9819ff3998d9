// SPDX-License-Identifier: Apache-2.0
// Finds credentials as AWS's own clients do.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "entrypoint/config/aws_profile.h"
#include "entrypoint/fetch/http_client.h"
#include "smp_runtime/core/variables.h"

namespace entrypoint::fetch {

/// The first that has any: variables (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN),
/// the profile's files, the container's address (AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or
/// _FULL_URI, with AWS_CONTAINER_AUTHORIZATION_TOKEN or its _FILE), the instance's metadata
/// (IMDSv2; AWS_EC2_METADATA_SERVICE_ENDPOINT, AWS_EC2_METADATA_DISABLED).
class CredentialChain {
 public:
  using WallClock = std::chrono::system_clock;

  /// All arguments must outlive it.
  CredentialChain(const smp::Variables& environment, const ProfileSettings& profile,
                  HttpClient& client, const RetryPolicy& policy)
      : environment_(environment), profile_(profile), client_(client), policy_(policy) {}

  /// Kept until five minutes before they expire. Blocks for a few seconds at most where a container
  /// or an instance has to be asked. Throws ConfigError that says where it looked and what it
  /// found.
  const Credentials& get(WallClock::time_point now = WallClock::now());

 private:
  bool from_variables();
  bool from_profile();
  bool from_container();
  bool from_instance();
  bool take(const HttpResponse& response, const std::string& origin);
  HttpResponse ask_instance(HttpRequest request);

  const smp::Variables& environment_;
  const ProfileSettings& profile_;
  HttpClient& client_;
  const RetryPolicy& policy_;
  Credentials found_;
  std::vector<std::string> looked_;  ///< one line a place, for the error
};

/// True if credentials may be fetched from this address: with TLS from anywhere, without only from
/// this host and from the addresses that ECS and EKS use. None with a user in it is trusted. Pure.
bool is_trusted_credential_url(const std::string& url);

}  // namespace entrypoint::fetch
