// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/fetch/http_client.h"

#include <algorithm>
#include <array>
#include <random>
#include <thread>

#include <fmt/format.h>

#include "smp_runtime/core/log.h"

namespace entrypoint::fetch {
namespace {

std::chrono::milliseconds jittered(std::chrono::milliseconds wait) {
  static std::minstd_rand random{std::random_device{}()};
  std::uniform_int_distribution<std::chrono::milliseconds::rep> some(wait.count() / 2,
                                                                     wait.count());
  return std::chrono::milliseconds(some(random));
}

}  // namespace

std::string HttpResponse::header(std::string_view name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

RetryPolicy patient() {
  return {.sleep = [](std::chrono::milliseconds wait) { std::this_thread::sleep_for(wait); }};
}

bool is_passing(const HttpResponse& response) {
  constexpr std::array kStatuses = {408, 429, 500, 502, 503, 504, 509};
  if (std::ranges::find(kStatuses, response.status) != kStatuses.end()) return true;
  return response.status == 400 && response.body.find("RequestTimeout") != std::string::npos;
}

HttpResponse send_with_retries(HttpClient& client, const HttpRequest& request,
                               const RetryPolicy& policy, const std::string& what) {
  using Clock = std::chrono::steady_clock;
  const auto last_begin = Clock::now() + policy.give_up_after;
  std::chrono::milliseconds wait = policy.first_wait;
  for (int attempt = 1;; ++attempt) {
    const auto pause = jittered(std::min(wait, policy.longest_wait));
    std::string reason;
    try {
      HttpResponse response = client.send(request);
      const bool is_last = attempt >= policy.attempts || Clock::now() + pause > last_begin;
      if (!is_passing(response) || is_last) return response;
      reason = "HTTP status " + std::to_string(response.status);
    } catch (const NoAnswer& error) {
      if (attempt >= policy.attempts || Clock::now() + pause > last_begin) {
        throw NoAnswer(
            fmt::format("after {} attempt{}: {}", attempt, attempt == 1 ? "" : "s", error.what()));
      }
      reason = error.what();
    }
    SMP_LOG(info, "{}: attempt {} of {}: {}; again in {} ms", what, attempt, policy.attempts,
            reason, pause.count());
    policy.sleep(pause);
    wait *= 2;
  }
}

}  // namespace entrypoint::fetch
