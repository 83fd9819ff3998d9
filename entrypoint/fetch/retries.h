// SPDX-License-Identifier: Apache-2.0
// Sends a request again while the reason may pass.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "entrypoint/fetch/http_client.h"

namespace entrypoint::fetch {

struct RetryPolicy {
  int attempts = 8;
  std::chrono::milliseconds first_wait{250};
  std::chrono::milliseconds longest_wait{10'000};
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
/// attempt brought none.
HttpResponse send_with_retries(HttpClient& client, const HttpRequest& request,
                               const RetryPolicy& policy, const std::string& what);

}  // namespace entrypoint::fetch
