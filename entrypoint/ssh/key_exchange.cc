// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/ssh/key_exchange.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "entrypoint/ssh/cluster_keys.h"
#include "opt_ml_layout/outputs.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/fnv1a.h"
#include "smp_runtime/core/log.h"

namespace entrypoint {
namespace {

constexpr std::chrono::seconds kConversation{5};
constexpr std::string_view kKeyLine = "SMP-KEYS/1 key ";
constexpr std::string_view kRefusedLine = "SMP-KEYS/1 refused ";
constexpr std::string_view kFailedLine = "SMP-KEYS/1 failed ";
constexpr std::string_view kDoneLine = "SMP-KEYS/1 done";

// Bytes from the network, made fit for a log line.
std::string printable(std::string_view text) {
  std::string result(text.substr(0, 200));
  std::ranges::replace_if(
      result, [](unsigned char c) { return c < 32 || c > 126; }, '?');
  return result;
}

std::string_view take_word(std::string_view& text) {
  const std::string_view word = text.substr(0, text.find(' '));
  text.remove_prefix(std::min(word.size() + 1, text.size()));
  return word;
}

// An exchange makes ed25519 keys only.
std::optional<std::string> parse_exchanged_key(std::string_view text) {
  auto key = parse_public_key(text);
  if (key && (!key->starts_with("ssh-ed25519 ") || *key != text)) return std::nullopt;
  return key;
}

std::string failed_line(std::string_view host, std::string_view job, const JobStatus& status) {
  std::string text;
  for (const char c : job_status_text(status)) {
    if (c == '\n' || c == '\\') text += '\\';
    text += c == '\n' ? 'n' : static_cast<unsigned char>(c) < 32 ? ' ' : c;
  }
  const std::string start = fmt::format("{}{} {} ", kFailedLine, host, job);
  return start +
         std::string(opt_ml::utf8_prefix(text, kLongestFailedLine - kSealBytes - start.size()));
}

std::string without_escapes(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text[i] == '\\' && i + 1 < text.size();
    if (escaped) ++i;
    result += escaped && text[i] == 'n' ? '\n' : text[i];
  }
  return result;
}

bool comes_from_master(const tcp::Connection& connection, const ExchangeRequest& request) {
  return std::ranges::any_of(request.master_addresses(), [&](const tcp::Address& address) {
    return address.same_host(connection.peer());
  });
}

/// `request` and `last`, which gets why a caller was turned away, outlive the rules.
tcp::Callers::Rules rules_for(const ExchangeRequest& request, std::string greeting,
                              std::string& last) {
  tcp::Callers::Rules rules = Conversation::rules(kLongestFailedLine, kConversation);
  rules.greet = [&request, &last, greeting = std::move(greeting)](
                    const tcp::Connection& caller) -> std::optional<std::string> {
    if (comes_from_master(caller, request)) {
      return Conversation::greeting(greeting, Side::kWorker, request.secret);
    }
    last = fmt::format("{} connected, which is no address of {}", caller.peer().text(),
                       request.master);
    SMP_LOG(warning, "key exchange: {}", last);
    return std::nullopt;
  };
  return rules;
}

// One conversation. Returns what the master sent, or throws.
Received converse(Conversation& master, const ExchangeRequest& request,
                  const std::optional<std::string>& accepted, Deadline deadline) {
  const std::string line = master.hear(kLongestFailedLine, deadline);
  if (auto failure = parse_failed_line(line, request.host, request.job)) {
    master.say(kDoneLine, deadline);
    return {.key = {}, .failure = std::move(failure)};
  }
  const auto refuse = [&](const std::string& reason) {
    master.say(fmt::format("{}{}", kRefusedLine, reason), deadline);
    throw smp::HostError("{}", reason);
  };
  if (!line.starts_with(kKeyLine)) refuse("expected a key, got \"" + printable(line) + "\"");
  std::string_view rest = std::string_view(line).substr(kKeyLine.size());
  const std::string_view host = take_word(rest);
  const std::string_view job = take_word(rest);
  if (host != request.host) {
    refuse(fmt::format("\"{}\" was meant, but this is {}", printable(host), request.host));
  }
  if (job != request.job) refuse("this host belongs to a job with another list of hosts");
  const auto key = parse_exchanged_key(rest);
  if (!key) {
    refuse("what came is not an ed25519 public key");
  } else if (accepted && *accepted != *key) {
    refuse("another key was accepted before; a job has one exchange");
  }
  master.say(fmt::format("{}{}", kKeyLine, request.host_key), deadline);
  return {.key = *key, .failure = {}};
}

}  // namespace

std::string job_digest(std::span<const std::string> hosts, std::string_view job_name) {
  constexpr std::string_view kEnd = "\xff";  // in no name
  std::uint64_t digest = smp::fnv1a(kEnd, smp::fnv1a(job_name));
  for (const std::string& host : hosts) digest = smp::fnv1a(kEnd, smp::fnv1a(host, digest));
  return fmt::format("{:016x}", digest);
}

void refuse_secret(Conversation& worker) {
  worker.say(fmt::format("{}the secret of the job is not the same here", kRefusedLine),
             Clock::now() + kConversation);
}

void hand_over_key(Conversation& worker, std::string_view greeting, std::string_view host,
                   std::string_view job, std::string_view job_key,
                   const std::function<void(const std::string& host_key)>& pin) {
  const Deadline deadline = Clock::now() + kConversation;
  SMP_CHECK(greeting.starts_with(kExchangeGreeting), "not a greeting: {}", greeting);
  std::string_view rest = greeting.substr(kExchangeGreeting.size());
  take_word(rest);  // its host and its job, which it compares itself
  take_word(rest);
  if (!rest.empty()) {
    refuse_secret(worker);
    throw smp::HostError(
        "{} was given the job's secret and this host was not; give all hosts the same "
        "SMP_JOB_SECRET",
        host);
  }
  worker.say(fmt::format("{}{} {} {}", kKeyLine, host, job, job_key), deadline);
  const std::string answer = worker.hear(kLongestExchangeLine, deadline);
  if (answer.starts_with(kRefusedLine)) {
    throw smp::HostError("it refused the key: {}", printable(answer.substr(kRefusedLine.size())));
  }
  const auto key = answer.starts_with(kKeyLine)
                       ? parse_exchanged_key(std::string_view(answer).substr(kKeyLine.size()))
                       : std::nullopt;
  if (!key) throw smp::HostError("it sent no host key but \"{}\"", printable(answer));
  pin(*key);
  worker.say(kDoneLine, deadline);
}

std::optional<JobStatus> parse_failed_line(std::string_view line, std::string_view host,
                                           std::string_view job) {
  if (!line.starts_with(kFailedLine)) return std::nullopt;
  line.remove_prefix(kFailedLine.size());
  if (take_word(line) != host || take_word(line) != job) return std::nullopt;
  return parse_job_status(without_escapes(line));
}

void confirm_failure(Conversation& worker) { worker.say(kDoneLine, Clock::now() + kConversation); }

void tell_worker_of_failure(Conversation& worker, std::string_view host, std::string_view job,
                            const JobStatus& status) {
  const Deadline deadline = Clock::now() + kConversation;
  worker.say(failed_line(host, job, status), deadline);
  if (worker.hear(kLongestExchangeLine, deadline) != kDoneLine) {
    throw smp::HostError("{} did not take the word of the failure", host);
  }
}

Received receive_key(tcp::Listener& listener, const ExchangeRequest& request, Deadline deadline) {
  std::optional<std::string> accepted;
  std::string last = "nobody connected";
  const std::string hello = fmt::format("{}{} {}", kExchangeGreeting, request.host, request.job);
  tcp::Callers callers(listener, rules_for(request, hello, last));
  while (auto caller = callers.next(deadline)) {
    const Deadline end = std::min(deadline, Clock::now() + kConversation);
    try {
      Conversation master(std::move(*caller), Side::kWorker, request.secret);
      const Received received = converse(master, request, accepted, end);
      if (received.failure) return received;
      accepted = received.key;
      if (master.hear(kLongestExchangeLine, end) == kDoneLine) return received;
      last = "the master broke the exchange off";
    } catch (const smp::HostError& error) {
      last = error.what();  // the master tries again
      SMP_LOG(warning, "key exchange with {}: {}", request.master, last);
    }
  }
  throw smp::HostError(
      "the master {} did not hand over its key in time: {}; look at the master's log, and see that "
      "every host runs this launcher and reaches the others by name (SM_LAUNCH_WORKER_TIMEOUT sets "
      "the time)",
      request.master, last);
}

bool tell_master_of_failure(tcp::Listener& listener, const ExchangeRequest& request,
                            const JobStatus& status, Deadline deadline) {
  std::string last;
  tcp::Callers callers(listener,
                       rules_for(request, failed_line(request.host, request.job, status), last));
  while (auto caller = callers.next(deadline)) {
    const Deadline end = std::min(deadline, Clock::now() + kConversation);
    try {
      Conversation master(std::move(*caller), Side::kWorker, request.secret);
      // A failed master says what it has to say, in place of `done`.
      const std::string answer = master.hear(kLongestFailedLine, end);
      if (answer == kDoneLine || answer.starts_with(kFailedLine)) return true;
    } catch (const smp::HostError& error) {
      SMP_LOG(debug, "telling {} of the failure: {}", request.master, error.what());
    }
  }
  return false;
}

}  // namespace entrypoint
