// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/fetch/aws_credentials.h"

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "opt_ml_layout/hyperparameters.h"
#include "opt_ml_layout/json_document.h"
#include "opt_ml_layout/value.h"
#include "smp_runtime/core/error.h"

namespace entrypoint::fetch {
namespace {

using namespace std::chrono_literals;

constexpr auto kRenewBefore = 5min;
constexpr auto kContainerLimit = 5s;
constexpr auto kInstanceLimit = 2s;  // nobody may be there at all
constexpr int kInstanceAttempts = 2;

std::optional<CredentialChain::WallClock::time_point> parse_time(const std::string& text) {
  std::tm time{};
  if (strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &time) == nullptr) return std::nullopt;
  return CredentialChain::WallClock::from_time_t(timegm(&time));
}

std::string first_line(const std::string& file_name) {
  std::ifstream file(file_name);
  std::string line;
  std::getline(file, line);
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
  return line;
}

}  // namespace

bool is_trusted_credential_url(const std::string& url) {
  const auto target = parse_url(url);
  if (!target || target->has_user) return false;
  constexpr std::string_view kHosts[] = {"localhost",     "127.0.0.1",      "[::1]",
                                         "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"};
  return target->scheme == "https" ||
         (target->scheme == "http" && std::ranges::find(kHosts, target->host) != std::end(kHosts));
}

const Credentials& CredentialChain::get(WallClock::time_point now) {
  const bool has_some = !found_.access_key.empty();
  if (has_some && (!found_.expires || now + kRenewBefore < *found_.expires)) return found_;
  looked_.clear();
  if (from_variables() || from_profile() || from_container() || from_instance()) return found_;
  throw smp::ConfigError(
      "no AWS credentials: {}; give the job's role access, or set AWS_ACCESS_KEY_ID and "
      "AWS_SECRET_ACCESS_KEY",
      fmt::join(looked_, "; "));
}

bool CredentialChain::from_variables() {
  const std::string key = smp::value_or(environment_, "AWS_ACCESS_KEY_ID");
  const std::string secret = smp::value_or(environment_, "AWS_SECRET_ACCESS_KEY");
  if (key.empty() || secret.empty()) {
    looked_.emplace_back(key.empty() && secret.empty()
                             ? "AWS_ACCESS_KEY_ID is not set"
                             : "only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set");
    return false;
  }
  found_ = {.access_key = key,
            .secret_key = secret,
            .session_token = smp::value_or(environment_, "AWS_SESSION_TOKEN"),
            .origin = "variables"};
  return true;
}

bool CredentialChain::from_profile() {
  const std::string name = profile_name(environment_);
  const std::string key = smp::value_or(profile_, "aws_access_key_id");
  const std::string secret = smp::value_or(profile_, "aws_secret_access_key");
  if (!key.empty() && !secret.empty()) {
    found_ = {.access_key = key,
              .secret_key = secret,
              .session_token = smp::value_or(profile_, "aws_session_token"),
              .origin = "profile " + name};
    return true;
  }
  for (const char* other : {"credential_process", "role_arn", "sso_session", "sso_start_url"}) {
    if (smp::value_or(profile_, other).empty()) continue;
    throw smp::ConfigError(
        "AWS profile \"{}\" gets its credentials by {}, which is not available here; set "
        "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN",
        name, other);
  }
  if (!smp::value_or(environment_, "AWS_PROFILE").empty()) {
    throw smp::ConfigError(
        "AWS_PROFILE={}: no such profile with aws_access_key_id and aws_secret_access_key in {} or "
        "{}; correct or unset it",
        name, smp::value_or(environment_, "AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
        smp::value_or(environment_, "AWS_CONFIG_FILE", "~/.aws/config"));
  }
  looked_.push_back(fmt::format("no keys of profile {} in ~/.aws", name));
  return false;
}

bool CredentialChain::take(const HttpResponse& response, const std::string& origin) {
  const auto answer = response.ok() ? opt_ml::try_parse_json(response.body) : std::nullopt;
  if (answer) {
    const Credentials taken{.access_key = answer->text_of("AccessKeyId"),
                            .secret_key = answer->text_of("SecretAccessKey"),
                            .session_token = answer->text_of("Token"),
                            .origin = origin,
                            .expires = parse_time(answer->text_of("Expiration"))};
    if (!taken.access_key.empty() && !taken.secret_key.empty()) {
      found_ = taken;
      return true;
    }
  }
  looked_.push_back(
      fmt::format("{} answered HTTP status {} without keys", origin, response.status));
  return false;
}

bool CredentialChain::from_container() {
  const std::string relative =
      smp::value_or(environment_, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  const std::string full = smp::value_or(environment_, "AWS_CONTAINER_CREDENTIALS_FULL_URI");
  if (relative.empty() && full.empty()) {
    looked_.emplace_back("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI is not set");
    return false;
  }
  HttpRequest request{.url = relative.empty() ? full : "http://169.254.170.2" + relative,
                      .direct = true,
                      .connect_limit = kContainerLimit,
                      .limit = kContainerLimit};
  if (!is_trusted_credential_url(request.url)) {
    throw smp::ConfigError(
        "AWS_CONTAINER_CREDENTIALS_{} leads to {}: credentials come over plain http only from this "
        "host or from 169.254.170.2 and .23, and never by a URL with a user in it; use https, or "
        "correct it",
        relative.empty() ? "FULL_URI" : "RELATIVE_URI", request.url);
  }
  std::string token = smp::value_or(environment_, "AWS_CONTAINER_AUTHORIZATION_TOKEN");
  // The file wins: EKS renews the token in it.
  const std::string file = smp::value_or(environment_, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  if (!file.empty()) token = first_line(file);
  if (token.find_first_of("\r\n") != std::string::npos) {
    throw smp::ConfigError("AWS_CONTAINER_AUTHORIZATION_TOKEN holds a line break; correct it");
  }
  if (!token.empty()) request.headers.push_back("Authorization: " + token);
  const std::string origin = "the container's credentials at " + request.url;
  try {
    return take(send_with_retries(client_, request, policy_, origin), origin);
  } catch (const NoAnswer& error) {
    throw smp::HostError("{}: no answer {}", origin, error.what());
  }
}

HttpResponse CredentialChain::ask_instance(HttpRequest request) {
  request.direct = true;
  request.connect_limit = request.limit = kInstanceLimit;
  RetryPolicy policy = policy_;
  policy.attempts = kInstanceAttempts;
  return send_with_retries(client_, request, policy, "instance metadata");
}

bool CredentialChain::from_instance() {
  const std::string disabled = smp::value_or(environment_, "AWS_EC2_METADATA_DISABLED");
  if (opt_ml::parse_switch(disabled).value_or(false)) {
    looked_.emplace_back("AWS_EC2_METADATA_DISABLED is set");
    return false;
  }
  std::string base =
      smp::value_or(environment_, "AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254");
  while (base.ends_with('/')) base.pop_back();
  const std::string folder = base + "/latest/meta-data/iam/security-credentials/";
  try {
    const HttpResponse session =
        ask_instance({.method = "PUT",
                      .url = base + "/latest/api/token",
                      .headers = {"X-aws-ec2-metadata-token-ttl-seconds: 21600"}});
    if (!session.ok()) {
      looked_.push_back(fmt::format("instance metadata gave no token: HTTP {}", session.status));
      return false;
    }
    const std::vector<std::string> headers = {"X-aws-ec2-metadata-token: " + session.body};
    const HttpResponse roles = ask_instance({.url = folder, .headers = headers});
    const std::string role = roles.body.substr(0, roles.body.find_first_of("\r\n"));
    if (!roles.ok() || role.empty()) {
      looked_.push_back(fmt::format("the instance has no role: HTTP {}", roles.status));
      return false;
    }
    return take(ask_instance({.url = folder + role, .headers = headers}), "instance role " + role);
  } catch (const NoAnswer& error) {
    looked_.push_back(fmt::format("instance metadata at {}: no answer {}", base, error.what()));
    return false;
  }
}

}  // namespace entrypoint::fetch
