// SPDX-License-Identifier: Apache-2.0
// Lines of the key exchange as whoever reaches a host's port may send them: a key that is taken for
// one is a key, a host's key is pinned for nobody who does not know the secret, and under the
// secret a line is heard exactly where its code fits.
#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include <sys/socket.h>

#include "entrypoint/ssh/cluster_keys.h"
#include "entrypoint/ssh/conversation.h"
#include "entrypoint/ssh/job_status.h"
#include "entrypoint/ssh/key_exchange.h"
#include "entrypoint/ssh/node_report.h"
#include "smp_runtime/core/error.h"
#include "tests/fuzz/target.h"

namespace {

using namespace entrypoint;  // a program, not a header
using fuzz::require;

constexpr std::string_view kHost = "algo-2";
constexpr std::string_view kJob = "0123456789abcdef";
constexpr std::string_view kKey =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGpvYm9mdGhlam9ib2Z0aGVqb2JvZnRoZWpvYm9m";
constexpr std::string_view kTold = "SMP-KEYS/1 hello algo-2 0123456789abcdef";
constexpr std::string_view kNonce = "00112233445566778899aabbccddeeff";

const std::optional<smp::JobSecret>& secret() {
  static const auto given =
      smp::JobSecret::given({{"SMP_JOB_SECRET", "a secret of a job, of forty characters or so"}});
  return given;
}

/// The ends of a connection without a network; what is written to the second has no reader.
std::pair<tcp::Connection, smp::FileDescriptor> connection() {
  std::array<int, 2> ends{};
  require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
  return {tcp::Connection(smp::FileDescriptor(ends[0]), {}), smp::FileDescriptor(ends[1])};
}

/// All that a caller says, who then hangs up.
std::pair<tcp::Connection, smp::FileDescriptor> caller(std::string_view words) {
  auto ends = connection();
  require(send(ends.second.get(), words.data(), words.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(words.size()));
  shutdown(ends.second.get(), SHUT_WR);
  return ends;
}

/// The master's side, as entrypoint/ssh/peer.cc goes through it; the key that it pins.
std::optional<std::string> pinned_by(std::string_view words, const Conversation::Secret& own) {
  auto [near, far] = caller(words);
  const Deadline deadline = Clock::now() + std::chrono::seconds(1);
  std::optional<std::string> pinned;
  try {
    Conversation worker(std::move(near), Side::kMaster, own);
    const std::string greeting = worker.hear_first(kExchangePrefix, kLongestFailedLine, deadline);
    if (parse_failed_line(greeting, kHost, kJob)) {
      confirm_failure(worker);
    } else if (greeting.starts_with(kExchangeGreeting)) {
      hand_over_key(worker, greeting, kHost, kJob, kKey,
                    [&](const std::string& key) { pinned = key; });
    }
  } catch (const smp::HostError&) {
  }
  return pinned;
}

/// What is to be said by `side` behind `transcript`, the nonce of a first line included.
std::string sealed(std::string line, char side, std::string_view transcript) {
  const smp::MacKey key(*secret(), "conversation of hosts");
  const smp::Mac code = key.of({smp::field({&side, 1}), smp::field(transcript), smp::field(line)});
  return line += " " + smp::mac_text(code);
}

std::string told() { return sealed(fmt::format("{} {}", kTold, kNonce), 'W', {}); }

/// The worker's side hears a first line behind its greeting.
std::optional<std::string> heard(const std::string& line) {
  auto [near, far] = connection();
  Conversation master({std::move(near), told() + "\n", line + "\n"}, Side::kWorker, secret());
  try {
    return master.hear(kLongestFailedLine, Clock::now());
  } catch (const smp::HostError&) {
    return std::nullopt;
  }
}

void look_at_line(const std::string& line) {
  if (const auto key = parse_public_key(line)) {
    require(parse_public_key(*key) == key && key->find('\n') == std::string::npos);
  }
  static_cast<void>(parse_failed_line(line, kHost, kJob));
  static_cast<void>(parse_job_status(line));
  std::string why;
  const auto number = parse_report(line, {.id = std::string(kJob), .count = 4}, why);
  require(number ? *number >= 1 && *number < 4 : !why.empty());

  const std::size_t blank = line.rfind(' ');
  const bool fits =
      blank != std::string::npos && sealed(line.substr(0, blank), 'M', "W" + told() + "\n") == line;
  require(heard(line).has_value() == fits);
}

}  // namespace

std::map<std::string, std::string> fuzz::made_inputs() {
  const std::string key = fmt::format("SMP-KEYS/1 key {} {} {}", kHost, kJob, kKey);
  const std::string transcript = "W" + told() + "\n";
  return {{"key", key + "\n"},
          {"worker", fmt::format("{}\nSMP-KEYS/1 key {}\n", kTold, kKey)},
          {"refused", fmt::format("{}\nSMP-KEYS/1 refused another job\n", kTold)},
          {"failed",
           fmt::format("SMP-KEYS/1 failed {} {} 1\\nExecuteUserScriptError:\\n\n", kHost, kJob)},
          {"report", fmt::format("SMP-NODES/2 report {} 3\n", kJob)},
          {"sealed", sealed(fmt::format("{} {}", key, kNonce), 'M', transcript) + "\n"},
          {"turned_back", told() + "\n"},
          {"ssh", "SSH-2.0-OpenSSH_9.2p1\r\n"}};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  const std::string words = fuzz::text_of(bytes, std::min<std::size_t>(count, 1 << 14));
  if (const auto key = pinned_by(words, std::nullopt)) {
    require(key->starts_with("ssh-ed25519 ") && parse_public_key(*key) == key);
  }
  require(!pinned_by(words, secret()));
  look_at_line(words.substr(0, words.find('\n')));
  return 0;
}
