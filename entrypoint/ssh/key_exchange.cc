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
  return start + std::string(opt_ml::utf8_prefix(text, kLongestFailedLine - start.size())) + "\n";
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

// One conversation. Returns what the master sent, or throws.
Received converse(tcp::Connection& connection, const ExchangeRequest& request,
                  const std::optional<std::string>& accepted, Deadline deadline) {
  connection.write(fmt::format("{}{} {}\n", kExchangeGreeting, request.host, request.job),
                   deadline);
  const std::string line = connection.read_line(kLongestFailedLine, deadline);
  if (auto failure = parse_failed_line(line, request.host, request.job)) {
    connection.write(fmt::format("{}\n", kDoneLine), deadline);
    return {.key = {}, .failure = std::move(failure)};
  }
  const auto refuse = [&](const std::string& reason) {
    connection.write(fmt::format("{}{}\n", kRefusedLine, reason), deadline);
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
  connection.write(fmt::format("{}{}\n", kKeyLine, request.host_key), deadline);
  return {.key = *key, .failure = {}};
}

}  // namespace

std::string job_digest(std::span<const std::string> hosts, std::string_view job_name) {
  constexpr std::string_view kEnd = "\xff";  // in no name
  std::uint64_t digest = smp::fnv1a(kEnd, smp::fnv1a(job_name));
  for (const std::string& host : hosts) digest = smp::fnv1a(kEnd, smp::fnv1a(host, digest));
  return fmt::format("{:016x}", digest);
}

void hand_over_key(tcp::Connection& connection, std::string_view greeting, std::string_view host,
                   std::string_view job, std::string_view job_key,
                   const std::function<void(const std::string& host_key)>& pin) {
  const Deadline deadline = Clock::now() + kConversation;
  SMP_CHECK(greeting.starts_with(kExchangeGreeting), "not a greeting: {}", greeting);
  connection.write(fmt::format("{}{} {} {}\n", kKeyLine, host, job, job_key), deadline);
  const std::string answer = connection.read_line(kLongestExchangeLine, deadline);
  if (answer.starts_with(kRefusedLine)) {
    throw smp::HostError("it refused the key: {}", printable(answer.substr(kRefusedLine.size())));
  }
  const auto key = answer.starts_with(kKeyLine)
                       ? parse_exchanged_key(std::string_view(answer).substr(kKeyLine.size()))
                       : std::nullopt;
  if (!key) throw smp::HostError("it sent no host key but \"{}\"", printable(answer));
  pin(*key);
  connection.write(fmt::format("{}\n", kDoneLine), deadline);
}

std::optional<JobStatus> parse_failed_line(std::string_view line, std::string_view host,
                                           std::string_view job) {
  if (!line.starts_with(kFailedLine)) return std::nullopt;
  line.remove_prefix(kFailedLine.size());
  if (take_word(line) != host || take_word(line) != job) return std::nullopt;
  return parse_job_status(without_escapes(line));
}

void confirm_failure(tcp::Connection& connection) {
  connection.write(fmt::format("{}\n", kDoneLine), Clock::now() + kConversation);
}

void tell_worker_of_failure(tcp::Connection& connection, std::string_view host,
                            std::string_view job, const JobStatus& status) {
  const Deadline deadline = Clock::now() + kConversation;
  connection.write(failed_line(host, job, status), deadline);
  if (connection.read_line(kLongestExchangeLine, deadline) != kDoneLine) {
    throw smp::HostError("{} did not take the word of the failure", host);
  }
}

Received receive_key(tcp::Listener& listener, const ExchangeRequest& request, Deadline deadline) {
  std::optional<std::string> accepted;
  std::string last = "nobody connected";
  while (auto connection = listener.accept(deadline)) {
    if (!comes_from_master(*connection, request)) {
      last = fmt::format("{} connected, which is no address of {}", connection->peer().text(),
                         request.master);
      SMP_LOG(warning, "key exchange: {}", last);
      continue;
    }
    const Deadline end = std::min(deadline, Clock::now() + kConversation);
    try {
      const Received received = converse(*connection, request, accepted, end);
      if (received.failure) return received;
      accepted = received.key;
      const std::string done = connection->read_line(kLongestExchangeLine, end);
      if (done == kDoneLine) return received;
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
  const std::string line = failed_line(request.host, request.job, status);
  while (auto connection = listener.accept(deadline)) {
    if (!comes_from_master(*connection, request)) continue;
    const Deadline end = std::min(deadline, Clock::now() + kConversation);
    try {
      connection->write(line, end);
      // A failed master says what it has to say, in place of `done`.
      const std::string answer = connection->read_line(kLongestFailedLine, end);
      if (answer == kDoneLine || answer.starts_with(kFailedLine)) return true;
    } catch (const smp::HostError& error) {
      SMP_LOG(debug, "telling {} of the failure: {}", request.master, error.what());
    }
  }
  return false;
}

}  // namespace entrypoint
