// SPDX-License-Identifier: Apache-2.0
// One HTTP request and its answer, as the AWS clients here need them, sent again while the reason
// of a failure may pass. The real client is curl_http_client.cc; tests bring their own.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
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
  std::string method = "GET";        ///< GET, PUT, POST or DELETE
  std::string url;                   ///< encoded; parameters sorted by name, which signing needs
  std::vector<std::string> headers;  ///< "Name: value"
  std::optional<Signature> signature;
  std::filesystem::path to_file;  ///< the body of a 2xx answer goes there; empty: into `body`
  std::int64_t most_bytes = std::numeric_limits<std::int64_t>::max();  ///< that go there
  std::filesystem::path from_file;  ///< PUT: what is sent; empty: nothing
  std::int64_t from_offset = 0;     ///< of the first byte of the file that is sent
  std::int64_t from_bytes = std::numeric_limits<std::int64_t>::max();  ///< at most, that are sent
  std::string body;                                                    ///< POST: what is sent
  bool direct = false;  ///< never through a proxy: addresses of this host's own
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

/// The answer has more than `most_bytes`.
class TooLarge : public std::runtime_error {
 public:
  using runtime_error::runtime_error;
};

class HttpClient {
 public:
  virtual ~HttpClient() = default;
  /// Blocks for at most `limit`. Follows no redirection. Throws NoAnswer; TooLarge; HostError when
  /// a local file cannot be read or written.
  virtual HttpResponse send(const HttpRequest& request) = 0;
};

/// The client with libcurl, for one thread at a time. `ca_bundle`: file of trusted certificates;
/// empty: the system's. Proxies come from the usual variables, which libcurl reads itself.
std::unique_ptr<HttpClient> make_curl_client(std::string ca_bundle);

/// Where a request would go.
struct UrlTarget {
  std::string scheme;     ///< in lower case
  std::string host;       ///< in lower case; an IPv6 address in brackets, in its short form
  bool has_user = false;  ///< a user or a password stands before it
};

/// By the parser that requests are sent by; nothing for a URL that it refuses. Pure.
std::optional<UrlTarget> parse_url(const std::string& url);

struct RetryPolicy {
  int attempts = 8;
  std::chrono::milliseconds first_wait{250};
  std::chrono::milliseconds longest_wait{10'000};
  /// No attempt begins later than this after the first one.
  std::chrono::milliseconds give_up_after{15 * 60 * 1000};
  /// Waits; a test's does not.
  std::function<void(std::chrono::milliseconds)> sleep;
};

/// The policy with a sleep that sleeps: about 26 s of waiting in all.
RetryPolicy patient();

/// True if the same request may do better later: 408, 429 and the passing ones of 5xx, and S3's
/// RequestTimeout, which is a 400.
bool is_passing(const HttpResponse& response);

/// The first answer that is not a passing failure, else the last answer. Between attempts it waits
/// between half and all of first_wait × 2ⁿ, at most longest_wait, so that hosts of a job do not
/// come back all at once. Logs each attempt that failed under `what`. Throws NoAnswer when the last
/// attempt brought none; its text begins with "after N attempts".
HttpResponse send_with_retries(HttpClient& client, const HttpRequest& request,
                               const RetryPolicy& policy, const std::string& what);

}  // namespace entrypoint::fetch
