// SPDX-License-Identifier: Apache-2.0
// An HTTP client that answers from a script and remembers what it was asked.
#pragma once

#include <deque>
#include <fstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "entrypoint/fetch/http_client.h"

namespace entrypoint::fetch {

class ScriptedClient final : public HttpClient {
 public:
  /// In order; a text is a connection that failed. Past the script nobody answers.
  explicit ScriptedClient(std::deque<std::variant<HttpResponse, std::string>> script)
      : script_(std::move(script)) {}

  HttpResponse send(const HttpRequest& request) override {
    requests.push_back(request);
    if (script_.empty()) throw NoAnswer("Connection refused");
    const auto next = std::move(script_.front());
    script_.pop_front();
    if (const auto* reason = std::get_if<std::string>(&next)) throw NoAnswer(*reason);
    const auto& response = std::get<HttpResponse>(next);
    if (!request.to_file.empty() && response.ok()) {
      std::ofstream(request.to_file, std::ios::binary) << response.body;
    }
    return response;
  }

  std::vector<HttpRequest> requests;

 private:
  std::deque<std::variant<HttpResponse, std::string>> script_;
};

inline HttpResponse answer(int status, std::string body = "") {
  return {.status = status, .body = std::move(body)};
}

/// Waits are noted, not spent.
struct NotedWaits {
  std::vector<std::chrono::milliseconds> waits;
  RetryPolicy policy{.sleep = [this](std::chrono::milliseconds wait) { waits.push_back(wait); }};
};

}  // namespace entrypoint::fetch
