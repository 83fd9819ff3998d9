// SPDX-License-Identifier: Apache-2.0
// One HTTP request and its answer, as the AWS clients here need them. The real client is
// curl_http_client.h; tests bring their own.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace entrypoint::fetch {

struct Credentials {
  std::string access_key;
  std::string secret_key;
  std::string session_token;  ///< empty for long-lived keys
  std::string origin;         ///< where they were found, for messages; never a secret
  std::optional<std::chrono::system_clock::time_point> expires;
};

/// AWS Signature Version 4.
struct Signature {
  Credentials credentials;
  std::string region;
  std::string service;  ///< "s3", "codeartifact"
};

struct HttpRequest {
  std::string method = "GET";        ///< GET, PUT or POST; the last two may have no body
  std::string url;                   ///< encoded; parameters sorted by name, which signing needs
  std::vector<std::string> headers;  ///< "Name: value"
  std::optional<Signature> signature;
  std::filesystem::path to_file;    ///< the body of a 2xx answer goes there; empty: into `body`
  std::filesystem::path from_file;  ///< PUT: what is sent; empty: nothing
  bool direct = false;              ///< never through a proxy: addresses of this host's own
  std::chrono::milliseconds connect_limit{10'000};
  std::chrono::milliseconds limit{30 * 60 * 1000};  ///< for the whole exchange
};

struct HttpResponse {
  int status = 0;
  std::map<std::string, std::string, std::less<>> headers;  ///< names in lower case
  std::string body;                                         ///< at most 1 MiB of it

  [[nodiscard]] bool ok() const { return status >= 200 && status < 300; }
  [[nodiscard]] std::string header(std::string_view name) const;
};

/// No answer came: the name is unknown, nobody listens, the connection broke, time ran out.
class NoAnswer : public std::runtime_error {
 public:
  using runtime_error::runtime_error;
};

class HttpClient {
 public:
  virtual ~HttpClient() = default;
  /// Blocks for at most `limit`. Follows no redirection. Throws NoAnswer; HostError when a local
  /// file cannot be read or written.
  virtual HttpResponse send(const HttpRequest& request) = 0;
};

}  // namespace entrypoint::fetch
