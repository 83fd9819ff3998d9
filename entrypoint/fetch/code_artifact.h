// SPDX-License-Identifier: Apache-2.0
// AWS CodeArtifact as pip's index.
#pragma once

#include <string>

#include "entrypoint/config/package_repository.h"
#include "entrypoint/fetch/aws_credentials.h"
#include "entrypoint/fetch/http_client.h"
#include "entrypoint/fetch/retries.h"

namespace entrypoint::fetch {

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
