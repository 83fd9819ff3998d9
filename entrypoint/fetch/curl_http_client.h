// SPDX-License-Identifier: Apache-2.0
// HttpClient with libcurl, which also signs requests.
#pragma once

#include <string>

#include "entrypoint/fetch/http_client.h"

namespace entrypoint::fetch {

class CurlHttpClient final : public HttpClient {
 public:
  /// `ca_bundle`: file of trusted certificates; empty: the system's. Proxies come from the usual
  /// variables, which libcurl reads itself.
  explicit CurlHttpClient(std::string ca_bundle);
  ~CurlHttpClient() override;
  CurlHttpClient(const CurlHttpClient&) = delete;
  CurlHttpClient& operator=(const CurlHttpClient&) = delete;

  /// One connection is kept open between calls. One thread at a time.
  HttpResponse send(const HttpRequest& request) override;

 private:
  void* handle_ = nullptr;  // CURL, which its header makes a void, too
  std::string ca_bundle_;
};

}  // namespace entrypoint::fetch
