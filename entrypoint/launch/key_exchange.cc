// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/launch/key_exchange.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "entrypoint/launch/ssh_keys.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"

namespace entrypoint::launch {
namespace {

constexpr std::chrono::seconds kConversation{5};
constexpr std::string_view kKeyLine = "SMP-KEYS/1 key ";
constexpr std::string_view kRefusedLine = "SMP-KEYS/1 refused ";
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

// One conversation. Returns the master's key, or throws.
std::string converse(Connection& connection, const ExchangeRequest& request,
                     const std::optional<std::string>& accepted, Deadline deadline) {
  connection.write(fmt::format("{}{} {}\n", kExchangeGreeting, request.host, request.job),
                   deadline);
  const std::string line = connection.read_line(kLongestExchangeLine, deadline);
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
  return *key;
}

}  // namespace

std::string job_digest(std::span<const std::string> hosts, std::string_view job_name) {
  // FNV-1a, 64 bits: it keeps accidents apart; no secret depends on it.
  std::uint64_t hash = 0xcbf29ce484222325U;
  const auto add = [&hash](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    hash = (hash ^ 0xffU) * 0x100000001b3U;
  };
  add(job_name);
  for (const std::string& host : hosts) add(host);
  return fmt::format("{:016x}", hash);
}

std::string hand_over_key(Connection& connection, std::string_view greeting, std::string_view host,
                          std::string_view job, std::string_view job_key) {
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
  connection.write(fmt::format("{}\n", kDoneLine), deadline);
  return *key;
}

std::string receive_key(Listener& listener, const ExchangeRequest& request, Deadline deadline) {
  std::optional<std::string> accepted;
  std::string last = "nobody connected";
  while (auto connection = listener.accept(deadline)) {
    const std::vector<Address> allowed = request.master_addresses();
    const bool from_master = std::ranges::any_of(
        allowed, [&](const Address& address) { return address.same_host(connection->peer()); });
    if (!from_master) {
      last = fmt::format("{} connected, which is no address of {}", connection->peer().text(),
                         request.master);
      SMP_LOG(warning, "key exchange: {}", last);
      continue;
    }
    const Deadline end = std::min(deadline, Clock::now() + kConversation);
    try {
      accepted = converse(*connection, request, accepted, end);
      const std::string done = connection->read_line(kLongestExchangeLine, end);
      if (done == kDoneLine) return *accepted;
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

}  // namespace entrypoint::launch
