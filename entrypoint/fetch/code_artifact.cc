// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/fetch/code_artifact.h"

#include <fmt/format.h>

#include "entrypoint/fetch/aws_endpoint.h"
#include "opt_ml_layout/json_document.h"
#include "opt_ml_layout/value.h"
#include "smp_runtime/core/error.h"

namespace entrypoint::fetch {

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
      throw smp::HostError("{}: no answer from {} after {} attempts: {}", what, base,
                           policy.attempts, error.what());
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
